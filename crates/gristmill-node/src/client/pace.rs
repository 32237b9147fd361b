//! A link that is slower than the real one, to see what a slow one would do.

use std::collections::VecDeque;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// How far ahead of its rate the link may be, so that pauses are long enough for the clock.
const AHEAD: Duration = Duration::from_millis(4);

/// The most that a link may catch up with after a pause that took too long.
const BEHIND: Duration = Duration::from_millis(20);

/// What was taken from the link so far.
#[derive(Debug)]
pub(super) struct Pace {
    bytes_per_s: Option<u64>,
    /// When all that was taken would have come over a link of that rate.
    due: Instant,
    /// By how much the last pause was too long, and when it ended.
    late: Option<(Duration, Instant)>,
}

impl Pace {
    pub(super) fn new(bytes_per_s: Option<u64>) -> Pace {
        Pace { bytes_per_s: bytes_per_s.filter(|rate| *rate > 0), due: Instant::now(), late: None }
    }

    /// So many bytes came: how long to wait before the next ones are taken.
    pub(super) fn took(&mut self, bytes: usize) -> Duration {
        let Some(rate) = self.bytes_per_s else { return Duration::ZERO };
        let now = Instant::now();
        // A rest is not made up for, but what came while the last ones were handed out would have been there already, too.
        let near = |&(_, woke): &(Duration, Instant)| now.saturating_duration_since(woke) <= AHEAD;
        let late = self.late.take().filter(near).map_or(Duration::ZERO, |(late, _)| late);
        let earliest = now.checked_sub(AHEAD + late).unwrap_or(now);
        self.due = self.due.max(earliest) + Duration::from_secs_f64(bytes as f64 / rate as f64);
        let ahead = self.due.saturating_duration_since(now);
        if ahead > AHEAD { ahead } else { Duration::ZERO }
    }

    /// The pause is over.
    pub(super) fn paused(&mut self) {
        let now = Instant::now();
        self.late = Some((now.saturating_duration_since(self.due).min(BEHIND), now));
    }
}

/// Hands on what comes in the same order, everything so much later; not more than `most` are under way.
pub(super) fn delayed<T: Send + 'static>(
    mut queue: mpsc::Receiver<T>,
    latency: Duration,
    most: usize,
) -> mpsc::Receiver<T> {
    let (late, delayed) = mpsc::channel(most.max(1));
    tokio::spawn(async move {
        let mut under_way: VecDeque<(tokio::time::Instant, T)> = VecDeque::new();
        let mut open = true;
        while open || !under_way.is_empty() {
            let due = under_way.front().map(|(due, _)| *due);
            let arrives = async {
                match due {
                    Some(due) => tokio::time::sleep_until(due).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = arrives => {
                    if let Some((_, one)) = under_way.pop_front()
                        && late.send(one).await.is_err()
                    {
                        return;
                    }
                }
                one = queue.recv(), if open && under_way.len() < most.max(1) => match one {
                    Some(one) => under_way.push_back((tokio::time::Instant::now() + latency, one)),
                    None => open = false,
                },
            }
        }
    });
    delayed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn everything_comes_later_and_nothing_waits_for_what_was_before() {
        let (send, queue) = mpsc::channel(16);
        let mut late = delayed(queue, Duration::from_millis(60), 4);
        let began = Instant::now();
        for one in 0..4 {
            send.send(one).await.unwrap();
        }
        assert_eq!(late.recv().await, Some(0));
        assert!(began.elapsed() >= Duration::from_millis(60), "{:?}", began.elapsed());
        // The others were under way meanwhile; one that comes after them has its own time to wait.
        let after = Instant::now();
        for one in 1..4 {
            assert_eq!(late.recv().await, Some(one));
        }
        assert!(after.elapsed() < Duration::from_millis(150), "{:?}", after.elapsed());
        let last = Instant::now();
        send.send(4).await.unwrap();
        drop(send);
        assert_eq!((late.recv().await, late.recv().await), (Some(4), None));
        assert!(last.elapsed() >= Duration::from_millis(60), "{:?}", last.elapsed());
    }

    #[test]
    fn a_rest_is_not_made_up_for() {
        let mut pace = Pace::new(Some(1_000_000));
        for _ in 0..3 {
            std::thread::sleep(Duration::from_millis(60));
            let pause = pace.took(50_000).as_secs_f64();
            assert!((0.045..0.051).contains(&pause), "{pause}");
            std::thread::sleep(Duration::from_millis(60));
            pace.paused();
        }
        // A pause that was much too long is, in part: but for a thread that was away for so long again.
        pace.took(50_000);
        std::thread::sleep(Duration::from_millis(65));
        pace.paused();
        let pause = pace.took(50_000).as_secs_f64();
        assert!((0.020..0.051).contains(&pause), "{pause}");
    }

    #[test]
    fn bytes_come_no_faster_than_the_rate() {
        let mut pace = Pace::new(Some(1_000_000));
        assert!(pace.took(1_000).is_zero(), "a millisecond is not worth a pause");
        let pause = pace.took(100_000).as_secs_f64();
        assert!((0.08..0.102).contains(&pause), "{pause}");
        for none in [None, Some(0)] {
            assert!(Pace::new(none).took(1 << 30).is_zero());
        }
    }
}
