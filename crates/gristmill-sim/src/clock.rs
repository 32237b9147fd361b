//! Virtual time, and what takes it: a server that answers one request after the other.
//!
//! Time is whole nanoseconds since the epoch began. Integers add up alike in any order, so a run is the same bit for
//! bit wherever it is made. A server is a disk, a link or a store: an answer begins a latency after its request, all answers
//! share one rate, and only so many requests are accepted per second. The end of an answer is known when it is asked
//! for, as in the throttled store of the real thing.
//!
//! Deliberately not here: seeks, jitter, losses.

/// Nanoseconds of virtual time.
pub(crate) type Ns = u64;

/// The longest time that is counted: about 30 years. Sums of very many of these still fit.
const LONGEST_S: f64 = 1e9;

/// Seconds as whole nanoseconds.
#[inline]
pub(crate) fn ns(seconds: f64) -> Ns {
    // Half up, which costs less than rounding half away from zero and is the same for what is not negative.
    (seconds.clamp(0.0, LONGEST_S) * 1e9 + 0.5) as Ns
}

/// Nanoseconds as seconds.
pub(crate) fn seconds(ns: Ns) -> f64 {
    ns as f64 / 1e9
}

/// Something that answers requests in the order in which they come.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Server {
    latency: Ns,
    s_per_byte: f64,
    ns_per_request: Ns,
    next_request: Ns,
    free: Ns,
}

impl Server {
    /// A server without limits where they are infinite.
    pub(crate) fn new(latency_s: f64, bytes_per_s: f64, requests_per_s: f64) -> Server {
        Server {
            latency: ns(latency_s),
            s_per_byte: 1.0 / bytes_per_s,
            ns_per_request: ns(1.0 / requests_per_s),
            next_request: 0,
            free: 0,
        }
    }

    /// How long these bytes take once they flow.
    #[inline]
    pub(crate) fn flow(&self, bytes: f64) -> Ns {
        ns(bytes * self.s_per_byte)
    }

    /// Reserves the answer of `bytes` to a request made at `start`, and says when it ends.
    #[inline]
    pub(crate) fn reserve(&mut self, start: Ns, bytes: f64) -> Ns {
        let sent = start.max(self.next_request);
        self.next_request = sent + self.ns_per_request;
        self.free = (sent + self.latency).max(self.free) + self.flow(bytes);
        self.free
    }

    /// Takes time for bytes that nobody waits for; what is asked for next comes after them.
    pub(crate) fn burden(&mut self, now: Ns, bytes: f64) {
        if bytes > 0.0 {
            self.free = self.free.max(now) + self.flow(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_limit_decides() {
        let last = |latency, rate, requests| {
            let mut server = Server::new(latency, rate, requests);
            (0..100).map(|_| server.reserve(0, 1_000.0)).last().unwrap()
        };
        let none = f64::INFINITY;
        assert_eq!(last(0.0, none, none), 0);
        assert_eq!(last(0.5, none, none), ns(0.5), "all wait at once");
        assert_eq!(last(0.5, 1_000.0, none), ns(100.5), "one after the other on the link");
        assert_eq!(last(0.5, none, 10.0), ns(9.9 + 0.5), "so many requests a second");
    }

    #[test]
    fn what_nobody_waits_for_takes_its_time_all_the_same() {
        let mut disk = Server::new(0.0, 1_000.0, f64::INFINITY);
        disk.burden(ns(1.0), 2_000.0);
        assert_eq!(disk.reserve(ns(1.5), 1_000.0), ns(4.0));
        disk.burden(ns(9.0), 0.0);
        assert_eq!(disk.reserve(ns(5.0), 0.0), ns(5.0));
    }

    #[test]
    fn times_are_bounded() {
        assert_eq!((ns(-1.0), ns(f64::NAN), ns(f64::INFINITY)), (0, 0, ns(LONGEST_S)));
        assert!((seconds(ns(12.345)) - 12.345).abs() < 1e-9);
    }
}
