//! The report as Prometheus reads it.

use super::ServerReport;
use crate::node::Tier;
use std::fmt::Write;

/// Name, kind, help and value of one figure of a data set.
type Figure = (&'static str, &'static str, &'static str, fn(&super::SetReport) -> u64);

/// The report in the text format of Prometheus.
pub(crate) fn text(report: &ServerReport) -> String {
    let mut page = Text::default();
    page.gauge("up_seconds", "Time since the node started.", report.up_s);
    page.gauge("connections", "Open connections.", report.connections);
    page.gauge("connections_max", "The limit on open connections.", report.connections_max);
    page.counter("handshakes_refused_total", "Handshakes that were refused.", report.refused);
    page.counter("connections_cut_off_total", "Connections that were cut off.", report.cut_off);
    page.counter("fetch_messages_total", "Fetch messages.", report.messages);
    page.counter("sent_samples_total", "Samples sent.", report.samples);
    page.counter("sent_bytes_total", "Bytes of samples sent.", report.bytes);
    page.counter("lane_bytes_total", "Those that went through shared memory.", report.lane_bytes);
    page.gauge("in_flight_bytes", "Bytes of answers in memory.", report.bytes_in_flight);
    page.gauge("in_flight_bytes_max", "The limit on bytes of answers in memory.", report.bytes_in_flight_max);
    page.gauge("draining", "1 while the node shuts down.", u8::from(report.draining));

    let ops = &report.ops;
    page.gauge("op_cores", "Cores that run ops for clients.", ops.cores);
    page.head("op_cpu_seconds_total", "counter", "CPU time of ops.");
    page.line(format_args!("gristmill_op_cpu_seconds_total {}", ops.cpu_s));
    page.gauge("op_queue", "Samples that wait for ops.", ops.queue);
    page.gauge("op_queue_max", "The limit on samples that wait for ops.", ops.queue_max);
    page.counter("op_busy_total", "Samples sent raw because the op queue was full.", ops.busy);
    page.counter("op_unsuited_total", "Samples sent raw because the stage does not suit them.", ops.unsuited);
    page.gauge("op_pixels_bytes", "Bytes of pictures that are kept decoded.", ops.pixels_bytes);
    page.gauge("op_pixels_bytes_max", "The limit on them.", ops.pixels_bytes_max);
    page.counter("op_pixels_hits_total", "Samples that needed no decoding because of them.", ops.pixels_hits);
    page.head(
        "staged_samples_total",
        "counter",
        "Samples that were asked for at a stage, by the stage sent.",
    );
    page.stages(ops, "staged_samples_total", |sent| sent.samples);
    page.head("staged_bytes_total", "counter", "Their bytes.");
    page.stages(ops, "staged_bytes_total", |sent| sent.bytes);

    page.head("served_samples_total", "counter", "Samples served, by data set and tier.");
    page.tiers(report, "served_samples_total", |set| set.node.served);
    page.head("served_bytes_total", "counter", "Bytes served, by data set and tier.");
    page.tiers(report, "served_bytes_total", |set| set.node.served_bytes);
    let figures: [Figure; 13] = [
        ("samples", "gauge", "Samples of the data set.", |set| set.node.samples.into()),
        ("jobs", "gauge", "Jobs that are in.", |set| set.node.jobs.len() as u64),
        ("stand_ins_total", "counter", "Samples served in the place of another.", |set| set.node.stand_ins),
        ("shared_reads_total", "counter", "Requests that shared a read.", |set| set.node.shared_reads),
        ("store_reads_total", "counter", "Reads from the store.", |set| set.node.store_reads),
        ("store_bytes_total", "counter", "Bytes read from the store.", |set| set.node.store_bytes),
        ("prefetched_total", "counter", "Samples read ahead.", |set| set.node.prefetched),
        ("memory_bytes", "gauge", "Bytes of samples in memory.", |set| set.node.memory_bytes),
        ("memory_bytes_max", "gauge", "The limit on them.", |set| set.node.memory_bytes_max),
        ("disk_bytes", "gauge", "Bytes of samples on disk.", |set| set.node.disk_bytes),
        ("disk_bytes_max", "gauge", "The limit on them.", |set| set.node.disk_bytes_max),
        ("disk_damaged_total", "counter", "Damaged entries of the disk tier.", |set| set.node.disk_damaged),
        ("disk_off", "gauge", "1 if the disk tier had to be switched off.", |set| {
            set.node.disk_off.is_some().into()
        }),
    ];
    for (name, kind, help, value) in figures {
        page.head(name, kind, help);
        for set in &report.sets {
            page.line(format_args!("gristmill_{name}{{set=\"{}\"}} {}", set.name, value(set)));
        }
    }
    page.out
}

/// Figures in the text format of Prometheus, as they are written.
#[derive(Debug, Default)]
pub(crate) struct Text {
    out: String,
}

impl Text {
    /// What was written.
    pub(crate) fn end(self) -> String {
        self.out
    }

    pub(crate) fn line(&mut self, text: std::fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.out, "{text}");
    }

    pub(crate) fn head(&mut self, name: &str, kind: &str, help: &str) {
        self.line(format_args!("# HELP gristmill_{name} {help}\n# TYPE gristmill_{name} {kind}"));
    }

    pub(crate) fn gauge(&mut self, name: &str, help: &str, value: impl std::fmt::Display) {
        self.head(name, "gauge", help);
        self.line(format_args!("gristmill_{name} {value}"));
    }

    pub(crate) fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.head(name, "counter", help);
        self.line(format_args!("gristmill_{name} {value}"));
    }

    fn stages(&mut self, ops: &super::OpsReport, name: &str, of: fn(&super::StageCount) -> u64) {
        for sent in &ops.stages {
            self.line(format_args!("gristmill_{name}{{stage=\"{}\"}} {}", sent.stage.name(), of(sent)));
        }
    }

    fn tiers(&mut self, report: &ServerReport, name: &str, of: fn(&super::SetReport) -> [u64; 6]) {
        for set in &report.sets {
            for (tier, value) in Tier::ALL.iter().zip(of(set)) {
                let tier = format!("{tier:?}").to_ascii_lowercase();
                self.line(format_args!("gristmill_{name}{{set=\"{}\",tier=\"{tier}\"}} {value}", set.name));
            }
        }
    }
}
