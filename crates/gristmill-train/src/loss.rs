//! Softmax and cross entropy, with a weight per sample, and the facts that selection wants to know.

/// What training learned about the samples of a batch, in their order.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Facts {
    /// The probability that the model gave to the true class.
    pub p_true: Vec<f32>,
    /// The largest probability that it gave to any other class.
    pub p_rival: Vec<f32>,
    /// The cross entropy in nats, before any weight.
    pub loss: Vec<f32>,
    /// The entropy of the prediction in bits.
    pub entropy: Vec<f32>,
}

impl Facts {
    /// How many samples were classified rightly; a tie is none.
    pub fn correct(&self) -> u64 {
        self.p_true.iter().zip(&self.p_rival).filter(|(own, rival)| own > rival).count() as u64
    }
}

/// Fills `facts` and gives back the batch's loss: the sum of weight times cross entropy, divided by the number of
/// samples. `logits` becomes the gradient of that loss by the logits.
///
/// There must be one label below `classes` and one weight for each row of logits.
pub fn softmax_cross_entropy(
    logits: &mut [f32],
    classes: usize,
    labels: &[u32],
    weights: &[f32],
    facts: &mut Facts,
) -> f64 {
    assert_eq!(logits.len(), labels.len() * classes, "one row of logits per label");
    assert_eq!(labels.len(), weights.len(), "one weight per label");
    facts.p_true.clear();
    facts.p_rival.clear();
    facts.loss.clear();
    facts.entropy.clear();
    let mut sum = 0.0;
    let count = labels.len() as f32;
    for ((row, &label), &weight) in logits.chunks_exact_mut(classes).zip(labels).zip(weights) {
        let label = label as usize;
        let largest = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let own = row[label] - largest;
        let mut total = 0.0;
        for value in row.iter_mut() {
            *value = (*value - largest).exp();
            total += *value;
        }
        // From the logit and not from the probability, which may have become 0. (A sum of at least 1 has a log of at
        // least 0, so the loss is never negative.)
        let loss = total.ln() - own;
        let (mut rival, mut entropy) = (0.0_f32, 0.0_f32);
        for (class, value) in row.iter_mut().enumerate() {
            let p = *value / total;
            if class == label {
                facts.p_true.push(p);
            } else if p > rival || p.is_nan() {
                rival = p;
            }
            if p > 0.0 {
                entropy -= p * p.log2();
            }
            *value = weight * (p - f32::from(class == label)) / count;
        }
        facts.p_rival.push(rival);
        facts.loss.push(loss);
        facts.entropy.push(entropy.max(0.0));
        sum += f64::from(weight) * f64::from(loss);
    }
    if labels.is_empty() { 0.0 } else { sum / labels.len() as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layer::check::{close, numbers, slopes};

    #[test]
    fn the_facts_of_known_logits() {
        let mut facts = Facts::default();
        let mut logits = vec![2.0_f32.ln(), 1.0_f32.ln(), 1.0_f32.ln(), 0.0, 0.0, 0.0];
        let loss = softmax_cross_entropy(&mut logits, 3, &[0, 2], &[1.0, 3.0], &mut facts);
        let near = |a: f32, b: f32| assert!((a - b).abs() < 1e-6, "{a} {b}");
        near(facts.p_true[0], 0.5);
        near(facts.p_rival[0], 0.25);
        near(facts.p_rival[1], 1.0 / 3.0);
        near(facts.entropy[0], 1.5);
        near(facts.entropy[1], 3.0_f32.log2());
        near(facts.loss[0], 2.0_f32.ln());
        near(loss as f32, f32::midpoint(2.0_f32.ln(), 3.0 * 3.0_f32.ln()));
        assert_eq!(facts.correct(), 1, "a tie is not right");
    }

    #[test]
    fn extreme_logits_stay_finite_and_broken_ones_show() {
        let mut facts = Facts::default();
        let mut logits = vec![-2e4, 2e4];
        let loss = softmax_cross_entropy(&mut logits, 2, &[0], &[1.0], &mut facts);
        assert!((loss - 4e4).abs() < 1.0 && facts.p_true[0] < 1e-9 && facts.p_rival[0] > 0.999);
        let mut logits = vec![f32::NAN, 0.0];
        assert!(softmax_cross_entropy(&mut logits, 2, &[0], &[1.0], &mut facts).is_nan());
        let mut one_class = vec![5.0];
        assert!(softmax_cross_entropy(&mut one_class, 1, &[0], &[1.0], &mut facts).abs() < 1e-9);
        assert_eq!((facts.p_true[0], facts.p_rival[0]), (1.0, 0.0));
    }

    #[test]
    fn the_gradient_is_the_slope_with_weights() {
        let (labels, weights) = ([1, 0, 2, 2], [1.0, 0.0, 2.5, 0.5]);
        let logits = numbers(7, 12);
        let mut gradient = logits.clone();
        softmax_cross_entropy(&mut gradient, 3, &labels, &weights, &mut Facts::default());
        let by = slopes(&logits, |logits| {
            softmax_cross_entropy(&mut logits.to_vec(), 3, &labels, &weights, &mut Facts::default())
        });
        close("logits", &gradient, &by);
        assert!(gradient[3..6].iter().all(|g| *g == 0.0), "a weight of 0 teaches nothing");
    }
}
