//! Parameters in an order that does not change between runs.

use tch::Tensor;
use tch::nn::VarStore;

/// Every trainable tensor by name, sorted.
pub fn named_parameters(store: &VarStore) -> Vec<(String, Tensor)> {
    let mut named: Vec<(String, Tensor)> = store.variables().into_iter().collect();
    named.sort_by(|a, b| a.0.cmp(&b.0));
    named
}
