//! The limits of files: a file may be made to fill the memory or the stack.

const MIB: u64 = 1 << 20;

/// The largest file of JSON. A page of a bundle has 500 objects: CiliumNodes with many addresses, or Nodes with their
/// images.
pub(super) const MAX_JSON: u64 = 128 * MIB;

/// The largest file of YAML, whose reader needs about eight times as much memory.
pub(super) const MAX_YAML: u64 = 64 * MIB;

/// The most that all files together may have, unpacked: an archive may be made to fill the memory.
pub(super) const MAX_SUM: u64 = 1024 * MIB;

/// The deepest level in a document. Kubernetes objects have less than half of it.
pub(super) const MAX_DEPTH: usize = 64;

/// The most values in a file. A value needs about a hundred bytes of memory.
pub(super) const MAX_VALUES: usize = 10_000_000;

/// A limit in words.
pub(super) fn size(bytes: u64) -> String {
    format!("{} MiB", bytes / MIB)
}

/// The refusal of a document beyond [`MAX_DEPTH`].
pub(super) fn too_deep() -> String {
    format!("a value is nested more than {MAX_DEPTH} levels deep; leave this document out")
}

/// The refusal of a file beyond [`MAX_VALUES`].
pub(super) fn too_many_values() -> String {
    format!("the file has more than {MAX_VALUES} values; split it into several files")
}
