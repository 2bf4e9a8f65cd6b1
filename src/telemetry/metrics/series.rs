//! The series of one metric, in the order of their labels.
//!
//! `prometheus_client` has a type for them too, with the order of a hash, which differs between processes.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prometheus_client::encoding::{EncodeLabelSet, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::{MetricType, TypedMetric};

/// Label names and values, in order.
pub(super) type Labels<const N: usize> = [(&'static str, &'static str); N];

/// The series of one metric by their labels. Clones share them.
pub(super) struct Series<K, M> {
    by_labels: Arc<Mutex<BTreeMap<K, M>>>,
    new: fn() -> M,
}

impl<K: Ord + Clone, M: Clone> Series<K, M> {
    /// Series whose metrics `new` creates.
    pub(super) fn new(new: fn() -> M) -> Self {
        Self { by_labels: Arc::default(), new }
    }

    /// The metric with these labels, created if it is new.
    pub(super) fn of(&self, labels: &K) -> M {
        let mut by_labels = self.lock();
        if let Some(metric) = by_labels.get(labels) {
            return metric.clone();
        }
        let metric = (self.new)();
        by_labels.insert(labels.clone(), metric.clone());
        metric
    }

    /// Keeps only the series with such labels.
    pub(super) fn retain(&self, mut keep: impl FnMut(&K) -> bool) {
        self.lock().retain(|labels, _| keep(labels));
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<K, M>> {
        // No panic leaves the map half changed.
        self.by_labels.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Ord + Clone, M: Clone + Default> Default for Series<K, M> {
    fn default() -> Self {
        Self::new(M::default)
    }
}

impl<K, M> Clone for Series<K, M> {
    fn clone(&self) -> Self {
        Self { by_labels: self.by_labels.clone(), new: self.new }
    }
}

impl<K: fmt::Debug, M: fmt::Debug> fmt::Debug for Series<K, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Series").field(&self.by_labels).finish()
    }
}

impl<K: Ord + Clone + EncodeLabelSet, M: Clone + EncodeMetric + TypedMetric> EncodeMetric for Series<K, M> {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        for (labels, metric) in self.lock().iter() {
            metric.encode(encoder.encode_family(labels)?)?;
        }
        Ok(())
    }

    fn metric_type(&self) -> MetricType {
        M::TYPE
    }

    fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }
}
