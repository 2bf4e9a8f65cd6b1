//! Lists of a few items that take as much memory as the items.

/// Inserts an item at a place. A list that grows by itself makes room for four items with the first one; this one
/// starts with one and doubles.
pub fn insert<T>(list: &mut Vec<T>, place: usize, item: T) {
    if list.len() == list.capacity() {
        list.reserve_exact(list.len().max(1));
    }
    list.insert(place, item);
}
