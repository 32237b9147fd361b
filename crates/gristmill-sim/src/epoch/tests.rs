//! An epoch against a naive model that looks at every rank after every event, and against sums that can be done by hand.

use super::*;
use crate::machine::{Disk, Link, Store};
use gristmill_core::exchange::{Choose, ExchangeOptions, Form};
use gristmill_core::plan::Shape;
use proptest::prelude::*;
use std::collections::{BTreeMap, VecDeque};

const LOCAL: Shuffle =
    Shuffle::Held(ExchangeOptions { fraction: 0.0, form: Form::Derangement, choose: Choose::Uniform });
const NONE: f64 = f64::INFINITY;

/// A machine on which nothing but the step takes time.
fn ideal(ranks: u32) -> Machine {
    Machine {
        ranks,
        ranks_per_node: 1,
        cores: 1_024,
        disk: Disk { bytes_per_s: NONE, latency_s: 0.0, sync_s: 0.0 },
        link: Link { bytes_per_s: NONE, latency_s: 0.0 },
        store: Store { bytes_per_s: NONE, requests_per_s: NONE, latency_s: 0.0 },
        timeout_s: 0.0,
        restart_s: 0.0,
    }
}

fn load(samples: u32) -> Load {
    Load { samples, bytes: 1_000.0, classes: 1, batch: 10, cpu_s: 0.0, step_s: 1.0, ..Load::default() }
}

fn knobs(shuffle: Shuffle) -> Knobs {
    Knobs { shuffle, threads: 1, reads_in_flight: 0, prefetch_batches: 1, ..Knobs::default() }
}

fn timing(machine: &Machine, load: &Load, knobs: &Knobs, faults: &[Fault], rounds: &[Round]) -> Timing {
    let plan = plan(machine, load);
    run(&Course { machine, load, knobs, faults, plan: &plan, sizes: &[], rounds })
}

fn plan(machine: &Machine, load: &Load) -> Plan {
    Plan::shuffled(load.samples, 0, 0, Shape { world: machine.ranks, ..Shape::single(load.batch) }).unwrap()
}

/// Wall time and causes as seconds of the mean rank: compute, read, cpu, slowest, exchange.
fn shown(timing: Timing, ranks: u32) -> [f64; 6] {
    let mean = |sum: u128| sum as f64 / 1e9 / f64::from(ranks);
    let s = |ns: Ns| ns as f64 / 1e9;
    let Timing { wall, compute, read, cpu, slowest, exchange } = timing;
    [s(wall), s(compute), mean(read), mean(cpu), mean(slowest), s(exchange)]
}

#[test]
fn by_hand() {
    let (machine, work) = (ideal(4), load(200));
    let see = |machine: &Machine, load: &Load, knobs: &Knobs, faults: &[Fault]| {
        let seen = shown(timing(machine, load, knobs, faults, &[]), machine.ranks);
        assert!((seen[0] - seen[1..].iter().sum::<f64>()).abs() < 1e-9, "the causes add up: {seen:?}");
        seen
    };
    // 50 samples a rank are 5 steps of 1 s.
    assert_eq!(see(&machine, &work, &knobs(LOCAL), &[]), [5.0, 5.0, 0.0, 0.0, 0.0, 0.0]);
    // 0.2 s of CPU a sample are 2 s a batch: the first is waited for, then each while the last is trained.
    let slow = Load { cpu_s: 0.2, ..work };
    assert_eq!(see(&machine, &slow, &knobs(LOCAL), &[]), [11.0, 5.0, 0.0, 6.0, 0.0, 0.0]);
    let two = Knobs { threads: 2, ..knobs(LOCAL) };
    assert_eq!(see(&machine, &slow, &two, &[]), [6.0, 5.0, 0.0, 1.0, 0.0, 0.0]);
    // Two ranks on one node of two cores, with two threads each: as slow as one thread each.
    let shared = Machine { ranks_per_node: 2, cores: 2, ..machine };
    let [wall, _, _, cpu, slowest, _] = see(&shared, &slow, &two, &[]);
    assert!((wall - 11.0).abs() < 0.5 && (cpu + slowest - 6.0).abs() < 0.5, "{wall} {cpu} {slowest}");
    // A disk of 10 kB/s: 1 s a batch, which prefetching hides but for the first.
    let disk = Machine { disk: Disk { bytes_per_s: 10_000.0, latency_s: 0.0, sync_s: 0.0 }, ..machine };
    assert_eq!(see(&disk, &work, &knobs(LOCAL), &[]), [6.0, 5.0, 1.0, 0.0, 0.0, 0.0]);
    // A cache that has half of it halves the reads; one that has all of it leaves none.
    let half = Knobs { cached: 0.5, ..knobs(LOCAL) };
    assert_eq!(see(&disk, &work, &half, &[]), [5.5, 5.0, 0.5, 0.0, 0.0, 0.0]);
    let all = Knobs { cached: 1.0, reads_in_flight: 1, ..half };
    assert_eq!(see(&disk, &work, &all, &[]), [5.0, 5.0, 0.0, 0.0, 0.0, 0.0]);
    // One slow disk: the others wait for it.
    let faults = [Fault::SlowDisk { rank: 2, factor: 2.0 }];
    assert_eq!(
        see(&disk, &work, &knobs(LOCAL), &faults),
        [11.0, 5.0, (6.0 + 3.0) / 4.0, 0.0, 15.0 / 4.0, 0.0]
    );
    let late = [Fault::LateRank { rank: 0, seconds: 3.0 }];
    assert_eq!(see(&machine, &work, &knobs(LOCAL), &late), [8.0, 5.0, 0.0, 0.0, 3.0, 0.0]);
    // The store gives 20 kB/s to all: 40 samples of 1 kB for a step take 2 s.
    let store =
        Machine { store: Store { bytes_per_s: 20_000.0, requests_per_s: NONE, latency_s: 0.0 }, ..machine };
    let many = Knobs { reads_in_flight: 4, ..knobs(Shuffle::Global) };
    let [wall, _, read, _, slowest, _] = see(&store, &work, &many, &[]);
    assert!((wall - 11.0).abs() < 1e-6 && read > slowest, "{wall} {read} {slowest}");
    // A latency of 0.1 s with two reads in flight: 0.5 s a batch.
    let far = Machine { store: Store { bytes_per_s: NONE, requests_per_s: NONE, latency_s: 0.1 }, ..machine };
    let two_reads = Knobs { reads_in_flight: 2, ..knobs(Shuffle::Global) };
    assert_eq!(see(&far, &work, &two_reads, &[]), [5.5, 5.0, 0.5, 0.0, 0.0, 0.0]);
}

#[test]
fn the_exchange_goes_on_beside_the_training_and_its_rest_is_waited_for() {
    // Each rank sends 2 samples of 1 kB after each of 5 batches to the next rank.
    let moves = (0..4).flat_map(|rank| [(rank, (rank + 1) % 4, 1.0); 2]).collect();
    let rounds = vec![Round { moves }; 5];
    let (work, knobs) = (load(200), knobs(LOCAL));
    let see = |rate: f64, latency_s: f64, hold: Hold| {
        let link = Link { bytes_per_s: rate, latency_s };
        let machine =
            Machine { link, disk: Disk { bytes_per_s: 100_000.0, latency_s: 0.0, sync_s: 0.25 }, ..ideal(4) };
        shown(timing(&machine, &work, &Knobs { hold, ..knobs }, &[], &rounds), 4)
    };
    assert_eq!(see(NONE, 0.0, Hold::Memory)[0], 5.0);
    // 2 s a round over 5 rounds from 0 s on: 10 s, and the steps take 5. What was sent is there when the sender is done.
    assert_eq!(see(1_000.0, 0.0, Hold::Memory)[5], 5.0);
    // Half a second a round: the last one begins with the last step and ends before it.
    assert_eq!(see(4_000.0, 0.0, Hold::Memory)[5], 0.0);
    // The last message is there in time; then the words of four ranks go two ways there and two back.
    assert_eq!(see(NONE, 0.5, Hold::Memory)[5], 2.0);
    // Where slices are on disk, it has to make sure of them.
    assert_eq!(see(NONE, 0.0, Hold::Disk)[5], 0.25);
    // The disk writes and reads what moves, beside the samples of the batches.
    assert!(see(NONE, 0.0, Hold::Disk)[2] > see(NONE, 0.0, Hold::Memory)[2]);
}

/// Everything that happens, one event after the other, by looking at all ranks after each.
struct Naive<'a> {
    course: &'a Course<'a>,
    store: Option<Server>,
    ranks: Vec<Worker>,
    /// Threads that wait for a core of their node, by node, and how many cores are free.
    nodes: Vec<(VecDeque<Waiting>, u32)>,
    events: BTreeMap<(Ns, u64), Event>,
    made: u64,
    step: u32,
    stepping: bool,
}

/// Rank, batch and relative size.
type Waiting = (u32, u32, f64);

struct Worker {
    server: Server,
    begun: bool,
    next: (u32, u32),
    asked: u32,
    reading: u32,
    idle: u32,
    arrived: VecDeque<(u32, f64)>,
    missing: Vec<u32>,
    taken: u32,
}

#[derive(Clone, Copy)]
enum Event {
    Begin(u32),
    Arrived(u32, u32, f64),
    Decoded(u32, u32),
    Stepped,
}

impl Naive<'_> {
    fn at(&mut self, time: Ns, event: Event) {
        self.made += 1;
        self.events.insert((time, self.made), event);
    }

    fn run(course: &Course<'_>) -> Ns {
        let Course { machine, plan, knobs, .. } = course;
        let worker = |rank| Worker {
            server: course.server(rank),
            begun: false,
            next: (0, 0),
            asked: 0,
            reading: 0,
            idle: knobs.threads,
            arrived: VecDeque::new(),
            missing: (0..plan.batches()).map(|batch| plan.batch_len(batch) as u32).collect(),
            taken: 0,
        };
        let store = machine.store;
        let mut naive = Naive {
            course,
            store: course
                .reads_store()
                .then(|| Server::new(store.latency_s, store.bytes_per_s, store.requests_per_s)),
            ranks: (0..machine.ranks).map(worker).collect(),
            nodes: vec![(VecDeque::new(), machine.cores); machine.nodes() as usize],
            events: BTreeMap::new(),
            made: 0,
            step: 0,
            stepping: false,
        };
        (0..machine.ranks).for_each(|rank| naive.at(course.late(rank), Event::Begin(rank)));
        let mut now = 0;
        while let Some(((at, _), event)) = naive.events.pop_first() {
            assert!(at >= now, "time goes on");
            now = at;
            naive.happens(event);
            // Nothing is decided before all that happens at this moment has.
            if naive.events.first_key_value().is_none_or(|((next, _), _)| *next > now) {
                naive.look(now);
            }
        }
        assert_eq!(naive.step, plan.batches());
        now
    }

    fn happens(&mut self, event: Event) {
        let direct = self.course.knobs.reads_in_flight == 0;
        match event {
            Event::Begin(rank) => self.ranks[rank as usize].begun = true,
            Event::Arrived(rank, batch, relative) => {
                let worker = &mut self.ranks[rank as usize];
                if direct {
                    let node = rank / self.course.machine.ranks_per_node;
                    self.nodes[node as usize].0.push_back((rank, batch, relative));
                } else {
                    worker.reading -= 1;
                    worker.arrived.push_back((batch, relative));
                }
            }
            Event::Decoded(rank, batch) => {
                let node = (rank / self.course.machine.ranks_per_node) as usize;
                self.nodes[node].1 += 1;
                let worker = &mut self.ranks[rank as usize];
                worker.idle += 1;
                worker.missing[batch as usize] -= 1;
            }
            Event::Stepped => {
                self.step += 1;
                self.stepping = false;
            }
        }
    }

    /// Lets everybody do what they can at this moment.
    fn look(&mut self, now: Ns) {
        let Course { machine, load, knobs, plan, .. } = self.course;
        loop {
            let before = self.made;
            for rank in 0..machine.ranks {
                let worker = &mut self.ranks[rank as usize];
                let ready = worker.missing.get(worker.taken as usize) == Some(&0);
                if ready && worker.taken == self.step && !self.stepping {
                    worker.taken += 1;
                    self.made += 1;
                }
            }
            if !self.stepping && self.step < plan.batches() && self.ranks.iter().all(|w| w.taken > self.step)
            {
                self.stepping = true;
                self.at(now + ns(load.step_s), Event::Stepped);
            }
            // Whoever asked for the fewest so far goes first.
            while let Some(rank) = (0..machine.ranks)
                .filter(|rank| self.can_ask(*rank).is_some())
                .min_by_key(|rank| (self.ranks[*rank as usize].asked, *rank))
            {
                let (batch, slot) = self.can_ask(rank).unwrap();
                let relative = self.course.relative(rank, batch, slot);
                let bytes = load.bytes * relative;
                let sent = self.store.as_mut().map_or(now, |store| store.reserve(now, bytes));
                let worker = &mut self.ranks[rank as usize];
                let end = worker.server.reserve(sent, bytes);
                worker.asked += 1;
                worker.reading += u32::from(knobs.reads_in_flight > 0);
                worker.idle -= u32::from(knobs.reads_in_flight == 0);
                let last = slot + 1 == plan.batch_len(batch) as u32;
                worker.next = if last { (batch + 1, 0) } else { (batch, slot + 1) };
                self.at(end, Event::Arrived(rank, batch, relative));
            }
            for rank in 0..machine.ranks {
                let worker = &mut self.ranks[rank as usize];
                while knobs.reads_in_flight > 0 && worker.idle > 0 && !worker.arrived.is_empty() {
                    let (batch, relative) = worker.arrived.pop_front().unwrap();
                    worker.idle -= 1;
                    let node = rank / machine.ranks_per_node;
                    self.nodes[node as usize].0.push_back((rank, batch, relative));
                }
            }
            for node in 0..self.nodes.len() {
                while self.nodes[node].1 > 0 && !self.nodes[node].0.is_empty() {
                    let (rank, batch, relative) = self.nodes[node].0.pop_front().unwrap();
                    self.nodes[node].1 -= 1;
                    self.at(now + ns(load.cpu_s * relative), Event::Decoded(rank, batch));
                }
            }
            if self.made == before {
                return;
            }
        }
    }

    fn can_ask(&self, rank: u32) -> Option<(u32, u32)> {
        let (knobs, worker) = (self.course.knobs, &self.ranks[rank as usize]);
        let room =
            if knobs.reads_in_flight > 0 { worker.reading < knobs.reads_in_flight } else { worker.idle > 0 };
        let open = worker.next.0 <= worker.taken + knobs.prefetch_batches;
        (worker.begun && room && open && worker.next.0 < self.course.plan.batches()).then_some(worker.next)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn as_the_naive_model(
        ranks in 1_u32..6, batch in 1_u32..7, samples in 6_u32..120, threads in 1_u32..4, reads in 0_u32..6,
        prefetch in 0_u32..4, global: bool, per_node in 1_u32..4, cores in 1_u32..6,
        rates in prop::array::uniform3(500.0..50_000.0_f64), latency in 0.0..0.2_f64,
        cpu_s in 0.0..0.3_f64, step_s in 0.0..2.0_f64, late in 0.0..2.0_f64, slow in 1.0..4.0_f64, seed: u64,
    ) {
        let machine = Machine {
            ranks,
            ranks_per_node: per_node,
            cores,
            disk: Disk { bytes_per_s: rates[0], latency_s: latency, sync_s: 0.0 },
            link: Link { bytes_per_s: rates[1] * 10.0, latency_s: 0.0 },
            store: Store { bytes_per_s: rates[2] * 10.0, requests_per_s: rates[0], latency_s: latency },
            timeout_s: 0.0,
            restart_s: 0.0,
        };
        let load = Load { samples, batch, cpu_s, step_s, spread: 0.7, ..load(samples) };
        let shuffle = if global { Shuffle::Global } else { LOCAL };
        let knobs = Knobs { shuffle, threads, reads_in_flight: reads, prefetch_batches: prefetch, ..knobs(LOCAL) };
        let faults =
            [Fault::LateRank { rank: 0, seconds: late }, Fault::SlowDisk { rank: ranks - 1, factor: slow }];
        let (plan, sizes) = (plan(&machine, &load), load.relative_sizes(seed));
        let course = Course {
            machine: &machine, load: &load, knobs: &knobs, faults: &faults, plan: &plan, sizes: &sizes, rounds: &[],
        };
        let (fast, naive) = (run(&course), Naive::run(&course));
        // What is asked for in the same instant may be served in another order: that moves an epoch by a sample's time.
        let one = ((cpu_s + latency) * 1e9) as u64;
        let off = fast.wall.abs_diff(naive);
        prop_assert!(off <= one.max(naive / 1_000), "{} against {}", fast.wall, naive);
        let causes = u128::from(ranks) * u128::from(fast.compute) + fast.read + fast.cpu + fast.slowest;
        prop_assert_eq!(causes, u128::from(ranks) * u128::from(fast.wall), "the causes add up");
    }

    /// Ranks that share nothing may be advanced in either way.
    #[test]
    fn both_ways_agree(
        ranks in 1_u32..6, batch in 1_u32..7, samples in 6_u32..120, threads in 1_u32..4, reads in 0_u32..6,
        prefetch in 0_u32..4, rate in 500.0..50_000.0_f64, cpu_s in 0.0..0.3_f64, step_s in 0.0..2.0_f64, seed: u64,
    ) {
        let machine = Machine { disk: Disk { bytes_per_s: rate, latency_s: 0.01, sync_s: 0.0 }, ..ideal(ranks) };
        let load = Load { samples, batch, cpu_s, step_s, spread: 0.7, ..load(samples) };
        let knobs = Knobs { threads, reads_in_flight: reads, prefetch_batches: prefetch, ..knobs(LOCAL) };
        let (plan, sizes) = (plan(&machine, &load), load.relative_sizes(seed));
        let course = Course {
            machine: &machine, load: &load, knobs: &knobs, faults: &[], plan: &plan, sizes: &sizes, rounds: &[],
        };
        let by_time = {
            let mut ranks: Vec<Rank> = (0..ranks).map(|rank| Rank::new(rank, &course)).collect();
            let (mut shared, mut steps) = (Shared { store: None, cores: Vec::new() }, Steps::new(&course));
            in_order_of_time(&course, &mut ranks, &mut shared, &mut steps);
            steps.over()
        };
        prop_assert_eq!(run(&course), by_time);
    }
}
