//! The transport between real processes: each test starts `mpirun` with this program again, once per rank.

use bytes::Bytes;
use gristmill_mpi::Session;
use gristmill_node::exchange::Transport;
use gristmill_node::exchange::testing::conform;
use std::process::{Command, Output};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// What a rank is to do: set for the processes that `mpirun` starts.
const ROLE: &str = "GRISTMILL_TEST_ROLE";
const PATIENCE: Duration = Duration::from_secs(30);

/// Runs `role` on every rank: the test of that name, in processes of its own.
fn under_mpirun(ranks: u32, role: &str) -> Output {
    let mut command = Command::new("mpirun");
    command.args(["-n", &ranks.to_string(), "--oversubscribe", "--bind-to", "none"]);
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1").env(ROLE, role);
    let this = std::env::current_exe().expect("a test program has a path");
    command.arg(this).args(["--exact", role, "--nocapture", "--test-threads", "1"]);
    command.output().expect("mpirun is installed by scripts/setup.sh mpi")
}

/// Whether this process is a rank of the test of this name.
fn is_rank(role: &str) -> bool {
    std::env::var(ROLE).is_ok_and(|mine| mine == role)
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[test]
fn it_conforms_to_what_the_exchange_relies_on() {
    const NAME: &str = "it_conforms_to_what_the_exchange_relies_on";
    if !is_rank(NAME) {
        let output = under_mpirun(4, NAME);
        assert!(output.status.success(), "{}", text(&output));
        assert_eq!(text(&output).matches("1 passed").count(), 4, "{}", text(&output));
        return;
    }
    let session = Session::start().unwrap();
    conform(&mut session.transport().unwrap()).unwrap();
    assert!(session.step(PATIENCE).unwrap());
    // A second one after the first: what the first left must not reach it.
    conform(&mut session.transport().unwrap()).unwrap();
}

#[test]
fn messages_of_all_sizes_arrive_whole() {
    const NAME: &str = "messages_of_all_sizes_arrive_whole";
    if !is_rank(NAME) {
        let output = under_mpirun(4, NAME);
        assert!(output.status.success(), "{}", text(&output));
        assert_eq!(text(&output).matches("1 passed").count(), 4, "{}", text(&output));
        return;
    }
    let session = Session::start().unwrap();
    let mut transport = session.transport().unwrap();
    let (rank, world) = (transport.rank(), transport.world());
    assert_eq!((world, transport.name()), (4, "mpi"));
    // From nothing to more than any eager limit, so that some need the receiver's answer before they leave.
    let sizes = [0_usize, 1, 4_095, 70_000, 5_000_000];
    let content = |from: u32, to: u32, tag: usize| {
        let byte = |i: usize| (i as u32 ^ (from * 7 + to * 31 + tag as u32)) as u8;
        Bytes::from((0..sizes[tag]).map(byte).collect::<Vec<u8>>())
    };
    for epoch in 0..2_u32 {
        for peer in (0..world).filter(|peer| *peer != rank) {
            for (tag, size) in sizes.iter().enumerate() {
                transport.send(peer, tag as u32, content(rank, peer, tag)).unwrap();
                // The receive of the last message is posted late: it waits at its sender.
                if tag + 1 < sizes.len() {
                    transport.expect(peer, tag as u32, *size).unwrap();
                }
            }
        }
        for peer in (0..world).filter(|peer| *peer != rank) {
            let last = sizes.len() - 1;
            transport.expect(peer, last as u32, sizes[last]).unwrap();
        }
        let mut missing = (world as usize - 1) * sizes.len();
        let began = Instant::now();
        while missing > 0 || transport.sending().unwrap() > 0 {
            while let Some((from, tag, message)) = transport.arrived().unwrap() {
                assert!(message == content(from, rank, tag as usize), "rank {from}, message {tag}");
                missing -= 1;
            }
            assert!(began.elapsed() < PATIENCE, "missing: {:?}", transport.outstanding());
            sleep(Duration::from_millis(1));
        }
        assert!(transport.outstanding().is_empty());
        let mine = vec![rank as u8; (rank * 100_000 + epoch) as usize];
        let said = transport.gather(&mine, PATIENCE).unwrap();
        for (from, words) in said.iter().enumerate() {
            assert!(*words == vec![from as u8; from * 100_000 + epoch as usize]);
        }
    }
    assert!(transport.send(rank, 0, Bytes::new()).unwrap_err().to_string().contains("no peer"));
    assert!(transport.expect(world, 0, 1).unwrap_err().to_string().contains("no peer"));
}

#[test]
fn a_rank_that_does_not_come_is_named() {
    const NAME: &str = "a_rank_that_does_not_come_is_named";
    if !is_rank(NAME) {
        let output = under_mpirun(3, NAME);
        // The ranks leave without each other, and mpirun says so.
        assert!(!output.status.success(), "{}", text(&output));
        assert!(text(&output).contains("said: rank 1 did not come within 0.5 s"), "{}", text(&output));
        return;
    }
    let session = Session::start().unwrap();
    let mut transport = session.transport().unwrap();
    if session.rank() == 1 {
        sleep(Duration::from_secs(30));
        return;
    }
    transport.expect(1, 7, 10).unwrap();
    assert_eq!(transport.outstanding(), [(1, 7)]);
    let error = transport.gather(b"here", Duration::from_millis(500)).unwrap_err();
    println!("said: {error}");
    assert!(transport.gather(b"again", Duration::from_millis(500)).is_err(), "who was lost once is lost");
    drop(transport);
    drop(session);
    // A process that fails ends so; mpirun then ends the one that hangs.
    std::process::exit(1);
}

#[test]
fn a_message_of_another_size_is_an_error_that_names_it() {
    const NAME: &str = "a_message_of_another_size_is_an_error_that_names_it";
    if !is_rank(NAME) {
        let output = under_mpirun(2, NAME);
        assert!(output.status.success(), "{}", text(&output));
        return;
    }
    let session = Session::start().unwrap();
    let mut transport = session.transport().unwrap();
    let peer = 1 - session.rank();
    for (tag, sent, expected) in [(3, 10, 12), (4, 12, 10)] {
        transport.send(peer, tag, Bytes::from(vec![1; sent])).unwrap();
        transport.expect(peer, tag, expected).unwrap();
        let error = loop {
            match transport.arrived() {
                Ok(None) => sleep(Duration::from_millis(1)),
                Ok(Some(_)) => panic!("it came"),
                Err(error) => break error,
            }
        };
        let words = format!("message {tag} of rank {peer}");
        assert!(error.to_string().contains(&words), "{error}");
    }
}
