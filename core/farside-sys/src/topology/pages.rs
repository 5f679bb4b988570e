//! Pages larger than the ordinary one.

use std::fmt;

use super::TopologyError;
use super::tree::Tree;

/// One size of huge page, with the number that the administrator has reserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HugePages {
    /// The size of one page.
    pub page_bytes: u64,
    /// Number of reserved pages.
    pub total: u64,
    /// Number of reserved pages that are not in use.
    pub free: u64,
}

/// The policy of transparent huge pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HugePagePolicy {
    /// Wherever they fit.
    Always,
    /// Wherever they lie within the file's size (shared memory only).
    WithinSize,
    /// Where a process asks for them with `madvise`.
    OnAdvice,
    /// Nowhere, even if a process asks for them.
    Never,
    /// Nowhere, not even in the kernel's internal memory (shared memory only).
    Deny,
    /// Everywhere, even if no process asks for them (shared memory only).
    Force,
}

impl HugePagePolicy {
    /// Returns whether a process that requests huge pages with `madvise` may get them.
    pub fn grants_on_advice(self) -> bool {
        !matches!(self, HugePagePolicy::Never | HugePagePolicy::Deny)
    }

    fn from_word(word: &str) -> Option<HugePagePolicy> {
        Some(match word {
            "always" => HugePagePolicy::Always,
            "within_size" => HugePagePolicy::WithinSize,
            "madvise" | "advise" => HugePagePolicy::OnAdvice,
            "never" => HugePagePolicy::Never,
            "deny" => HugePagePolicy::Deny,
            "force" => HugePagePolicy::Force,
            _ => return None,
        })
    }
}

impl fmt::Display for HugePagePolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            HugePagePolicy::Always => "always",
            HugePagePolicy::WithinSize => "within size",
            HugePagePolicy::OnAdvice => "on advice",
            HugePagePolicy::Never => "never",
            HugePagePolicy::Deny => "deny",
            HugePagePolicy::Force => "force",
        })
    }
}

pub(super) fn read_huge_pages(tree: &Tree<'_>) -> Result<Vec<HugePages>, TopologyError> {
    let folder = "sys/kernel/mm/hugepages";
    let mut sizes = Vec::new();
    for kilobytes in tree.numbered::<u64>(folder, "hugepages-", "kB")? {
        let pages = format!("{folder}/hugepages-{kilobytes}kB");
        sizes.push(HugePages {
            page_bytes: kilobytes.saturating_mul(1024),
            total: tree.number(&format!("{pages}/nr_hugepages"))?.unwrap_or(0),
            free: tree.number(&format!("{pages}/free_hugepages"))?.unwrap_or(0),
        });
    }
    Ok(sizes)
}

/// Reads a choice such as `always [madvise] never`.
pub(super) fn read_policy(tree: &Tree<'_>, file: &str) -> Result<Option<HugePagePolicy>, TopologyError> {
    let path = format!("sys/kernel/mm/transparent_hugepage/{file}");
    let Some(text) = tree.text(&path)? else { return Ok(None) };
    let chosen = text.split_whitespace().find_map(|word| word.strip_prefix('[')?.strip_suffix(']'));
    match chosen.and_then(HugePagePolicy::from_word) {
        Some(policy) => Ok(Some(policy)),
        None => Err(tree.malformed(&path, "policies with one of them in brackets", &text)),
    }
}
