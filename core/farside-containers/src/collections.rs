//! Collections of std as [`Remote`] values, and [`Multiset`].
//!
//! The methods do at the owner what those of std do, and return their results. Arguments and
//! results travel by value. An [`Answer`] that is dropped lets the call go on.
//!
//! Each of ACP's 149 functions on containers is one of these (`X` stands for the container):
//!
//! | ACP | here |
//! |---|---|
//! | `acp_create_X(…, rank)`, `acp_destroy_X` | [`Remotes::create`](crate::Remotes::create), [`Remote::free`] |
//! | `acp_assign_X`, `acp_assign_range_X` | `clear`, then `extend` |
//! | `acp_at_X`, `acp_dereference_X_it` | `get`, `set`, and the items of a [`Cursor`] |
//! | `acp_decrement_list_it` | `get` with the index before |
//! | `acp_begin_X`, `acp_end_X`, `acp_advance_X_it`, `acp_increment_X_it`, `acp_distance_X_it` | [`Remote::iter`], a [`Cursor`], and the adaptors of [`Iterator`] |
//! | `acp_size_X`, `acp_empty_X`, `acp_capacity_vector`, `acp_capacity_deque`, `acp_reserve_X` | `len`, `is_empty`, `capacity`, `reserve` |
//! | `acp_push_back_X`, `acp_push_front_X`, `acp_pop_back_X`, `acp_pop_front_X` | `push`, `pop`; for a deque `push_back`, `push_front`, `pop_back`, `pop_front` |
//! | `acp_insert_X`, `acp_insert_range_X` | `insert`, `extend`, [`Remote::splice`] |
//! | `acp_erase_X`, `acp_erase_range_X`, `acp_remove_list` | `remove`, `drain`, and `retain` by [`Remote::with`] |
//! | `acp_remove_set`, `acp_remove_map`, `acp_remove_multiset`, `acp_remove_all_multiset` | `remove`, `remove_all` |
//! | `acp_find_X`, `acp_retrieve_map`, `acp_retrieve_multiset` | `contains`, `contains_key`, `get`, `count` |
//! | `acp_clear_X`, `acp_swap_X` | `clear`, and an exchange of the two handles |
//! | `acp_splice_list`, `acp_splice_range_list`, `acp_move_X` | [`Remote::splice`], [`Remote::append`], which move items between workers |
//! | `acp_merge_list` | [`Remote::append`], then `sort`, which finds two sorted runs |
//! | `acp_merge_X` for a set, a map and a multiset | `extend` with the items of a [`Cursor`] |
//! | `acp_reverse_list`, `acp_sort_list`, `acp_unique_list` | `reverse`, `sort`, `dedup` |
//! | `acp_begin_local_X`, `acp_size_local_X` and the other functions on a part of one rank | [`Remote::here`] at the owner; a value has one owner |
//!
//! ACP's list is a `VecDeque` here: at one worker its links would only cost memory. ACP's map and
//! set are hash tables, whose iterators follow buckets: here a [`Cursor`] of a `HashMap` follows
//! hashes, and looks at all keys for each block. A `BTreeMap` has the cheap cursor.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::fmt;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher, Hash};
use std::ops::{Bound, Range};
use std::vec;

use farside::{Error, Pending, Reply, Result, Wire, Worker};

use crate::remote::{Answer, Outcome, Remote, RemoteError};

/// A collection that travels in parts: a [`Cursor`] reads it in blocks, and
/// [`append`](Remote::append) moves its items to another one.
pub trait Collection: 'static {
    /// An item.
    type Item: Wire + Clone;
    /// The place of an item, from which reading goes on.
    type Place: Wire + Clone;

    /// Returns the items behind `last`, or the first, and the place of the last. They are `count`,
    /// or all that are left. If several items have the last place, they are more.
    fn block(&self, last: Option<&Self::Place>, count: usize) -> (Vec<Self::Item>, Option<Self::Place>);

    /// Removes the items in this range of the collection's order, as far as it has them.
    fn take(&mut self, range: Range<usize>) -> Vec<Self::Item>;

    /// Adds items: before the item `at`, or at the end. A sorted collection puts each where it
    /// belongs.
    fn give(&mut self, at: usize, items: Vec<Self::Item>);

    /// Takes items back that were [taken](Self::take) from the place `at` and could not be moved. A
    /// map keeps the values that its keys got meanwhile.
    fn give_back(&mut self, at: usize, items: Vec<Self::Item>) {
        self.give(at, items);
    }
}

/// Limits a range to a length.
fn within(range: Range<usize>, len: usize) -> Range<usize> {
    let end = range.end.min(len);
    range.start.min(end)..end
}

impl<T: Wire + Clone> Collection for Vec<T> {
    type Item = T;
    type Place = usize;

    fn block(&self, last: Option<&usize>, count: usize) -> (Vec<T>, Option<usize>) {
        let start = last.map_or(0, |last| last + 1);
        let range = within(start..start.saturating_add(count), self.len());
        (self[range.clone()].to_vec(), range.last())
    }

    fn take(&mut self, range: Range<usize>) -> Vec<T> {
        self.drain(within(range, self.len())).collect()
    }

    fn give(&mut self, at: usize, items: Vec<T>) {
        let at = at.min(self.len());
        self.splice(at..at, items);
    }
}

impl<T: Wire + Clone> Collection for VecDeque<T> {
    type Item = T;
    type Place = usize;

    fn block(&self, last: Option<&usize>, count: usize) -> (Vec<T>, Option<usize>) {
        let start = last.map_or(0, |last| last + 1);
        let range = within(start..start.saturating_add(count), self.len());
        (self.range(range.clone()).cloned().collect(), range.last())
    }

    fn take(&mut self, range: Range<usize>) -> Vec<T> {
        self.drain(within(range, self.len())).collect()
    }

    fn give(&mut self, at: usize, items: Vec<T>) {
        let behind = self.split_off(at.min(self.len()));
        self.extend(items);
        self.extend(behind);
    }
}

impl<K: Wire + Clone + Ord, V: Wire + Clone> Collection for BTreeMap<K, V> {
    type Item = (K, V);
    type Place = K;

    fn block(&self, last: Option<&K>, count: usize) -> (Vec<(K, V)>, Option<K>) {
        let behind = (last.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
        let items: Vec<_> = self.range(behind).take(count).map(|(key, value)| (key.clone(), value.clone())).collect();
        let last = items.last().map(|(key, _)| key.clone());
        (items, last)
    }

    fn take(&mut self, range: Range<usize>) -> Vec<(K, V)> {
        let range = within(range, self.len());
        let keys: Vec<K> = self.keys().skip(range.start).take(range.len()).cloned().collect();
        keys.iter().filter_map(|key| self.remove_entry(key)).collect()
    }

    fn give(&mut self, _: usize, items: Vec<(K, V)>) {
        self.extend(items);
    }

    fn give_back(&mut self, _: usize, items: Vec<(K, V)>) {
        for (key, value) in items {
            self.entry(key).or_insert(value);
        }
    }
}

/// The order of a hash map is that of the hashes of its keys, which stays when the table grows. A
/// block with the last key of one hash has all of them, so it may be longer than asked for.
///
/// *Cost*: each block looks at all keys. A sorted map finds the next one.
impl<K: Wire + Clone + Hash + Eq, V: Wire + Clone> Collection for HashMap<K, V> {
    type Item = (K, V);
    type Place = u64;

    fn block(&self, last: Option<&u64>, count: usize) -> (Vec<(K, V)>, Option<u64>) {
        let block = behind(self, last.copied(), count);
        let last = block.last().map(|(hash, ..)| *hash);
        (block.into_iter().map(|(_, key, value)| (key.clone(), value.clone())).collect(), last)
    }

    fn take(&mut self, range: Range<usize>) -> Vec<(K, V)> {
        let range = within(range, self.len());
        let first = behind(self, None, range.end);
        let keys: Vec<K> = first.into_iter().take(range.end).skip(range.start).map(|(_, key, _)| key.clone()).collect();
        keys.iter().filter_map(|key| self.remove_entry(key)).collect()
    }

    fn give(&mut self, _: usize, items: Vec<(K, V)>) {
        self.extend(items);
    }

    fn give_back(&mut self, _: usize, items: Vec<(K, V)>) {
        for (key, value) in items {
            self.entry(key).or_insert(value);
        }
    }
}

/// Returns the first `count` entries behind a hash, in the order of hashes, and all others with the
/// hash of the last.
pub(crate) fn behind<K: Hash, V>(entries: &HashMap<K, V>, last: Option<u64>, count: usize) -> Vec<(u64, &K, &V)> {
    // Without a random key, so that a place means the same in each call.
    let hasher = BuildHasherDefault::<DefaultHasher>::default();
    let all = entries.iter().map(|(key, value)| (hasher.hash_one(key), key, value));
    let mut block: Vec<_> = all.filter(|(hash, ..)| last.is_none_or(|last| *hash > last)).collect();
    if let Some(most) = count.checked_sub(1).filter(|most| *most < block.len()) {
        let (_, &mut (end, ..), _) = block.select_nth_unstable_by_key(most, |(hash, ..)| *hash);
        block.retain(|(hash, ..)| *hash <= end);
    }
    block.sort_unstable_by_key(|(hash, ..)| *hash);
    block
}

impl<T: Wire + Clone + Ord> Collection for BTreeSet<T> {
    type Item = T;
    type Place = T;

    fn block(&self, last: Option<&T>, count: usize) -> (Vec<T>, Option<T>) {
        let behind = (last.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
        let items: Vec<T> = self.range(behind).take(count).cloned().collect();
        let last = items.last().cloned();
        (items, last)
    }

    fn take(&mut self, range: Range<usize>) -> Vec<T> {
        let range = within(range, self.len());
        let items: Vec<T> = self.iter().skip(range.start).take(range.len()).cloned().collect();
        items.iter().filter_map(|item| self.take(item)).collect()
    }

    fn give(&mut self, _: usize, items: Vec<T>) {
        self.extend(items);
    }
}

/// A sorted set that counts how often it has each item. Its items, for a [`Cursor`] and `extend`,
/// are pairs of an item and a count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Multiset<T>(BTreeMap<T, u64>);

impl<T> Default for Multiset<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T: Ord> Multiset<T> {
    /// Adds an item `count` times. Returns how often the set has it then.
    pub fn insert_many(&mut self, item: T, count: u64) -> u64 {
        if count == 0 {
            return self.count(&item);
        }
        let now = self.0.entry(item).or_default();
        *now = now.saturating_add(count);
        *now
    }

    /// Removes one of the items that are equal to this one. Returns whether there was one.
    pub fn remove(&mut self, item: &T) -> bool {
        let Some(count) = self.0.get_mut(item) else { return false };
        *count -= 1;
        if *count == 0 {
            self.0.remove(item);
        }
        true
    }

    /// Returns how often the set has this item.
    pub fn count(&self, item: &T) -> u64 {
        self.0.get(item).copied().unwrap_or_default()
    }
}

impl<T: Ord> Extend<(T, u64)> for Multiset<T> {
    fn extend<I: IntoIterator<Item = (T, u64)>>(&mut self, items: I) {
        for (item, count) in items {
            self.insert_many(item, count);
        }
    }
}

impl<T: Wire + Clone + Ord> Collection for Multiset<T> {
    type Item = (T, u64);
    type Place = T;

    fn block(&self, last: Option<&T>, count: usize) -> (Vec<(T, u64)>, Option<T>) {
        self.0.block(last, count)
    }

    fn take(&mut self, range: Range<usize>) -> Vec<(T, u64)> {
        self.0.take(range)
    }

    fn give(&mut self, _: usize, items: Vec<(T, u64)>) {
        self.extend(items);
    }
}

/// Implements methods of a [`Remote`] collection. Each runs an expression at the owner.
macro_rules! methods {
    (impl[$($bounds:tt)*] $type:ty { $(
        $name:ident($($argument:ident: $of:ty),*) -> $result:ty = |$value:ident| $body:expr;
    )* }) => {
        impl<$($bounds)*> Remote<$type> {
            $(
                #[doc = concat!("`", stringify!($name), "` of the collection, at the owner.")]
                pub fn $name(self, me: &Worker $(, $argument: $of)*) -> Answer<'_, $result> {
                    let sent = me.call_return(self.owner(), (self, ($($argument,)*)), |there, (this, ($($argument,)*))| {
                        this.at_owner(there, |$value| $body)
                    });
                    Answer::new(me, sent.map_err(Into::into))
                }
            )*
        }
    };
}

/// Methods that vectors and deques share.
macro_rules! sequence {
    ($type:ident) => {
        methods!(impl[T: Wire + Clone] $type<T> {
            len() -> usize = |items| items.len();
            is_empty() -> bool = |items| items.is_empty();
            capacity() -> usize = |items| items.capacity();
            clear() -> () = |items| items.clear();
            truncate(len: usize) -> () = |items| items.truncate(len);
            get(index: usize) -> Option<T> = |items| items.get(index).cloned();
            set(index: usize, value: T) -> T = |items| std::mem::replace(&mut items[index], value);
            swap(one: usize, other: usize) -> () = |items| items.swap(one, other);
            insert(index: usize, value: T) -> () = |items| { items.insert(index, value); };
            extend(values: Vec<T>) -> () = |items| items.extend(values);
            drain(start: usize, end: usize) -> Vec<T> = |items| items.drain(start..end).collect();
        });

        impl<T: Wire + Clone> Remote<$type<T>> {
            /// `try_reserve` of the collection, at the owner: a caller cannot end its process. The
            /// answer may be [`RemoteError::NotReserved`].
            pub fn reserve(self, me: &Worker, additional: usize) -> Answer<'_, ()> {
                let sent = me.call_return(self.owner(), (self, additional), |there, (this, additional)| {
                    let owner = there.id();
                    let reserved = this.at_owner(there, |items| items.try_reserve(additional))?;
                    reserved.map_err(|error| RemoteError::NotReserved { owner, additional, why: error.to_string() })
                });
                Answer::new(me, sent.map_err(Into::into))
            }
        }
    };
}

sequence!(Vec);
sequence!(VecDeque);

methods!(impl[T: Wire + Clone] Vec<T> {
    push(value: T) -> () = |items| items.push(value);
    pop() -> Option<T> = |items| items.pop();
    first() -> Option<T> = |items| items.first().cloned();
    last() -> Option<T> = |items| items.last().cloned();
    remove(index: usize) -> T = |items| items.remove(index);
    swap_remove(index: usize) -> T = |items| items.swap_remove(index);
    reverse() -> () = |items| items.reverse();
});
methods!(impl[T: Wire + Clone + Ord] Vec<T> {
    contains(value: T) -> bool = |items| items.contains(&value);
    sort() -> () = |items| items.sort();
    dedup() -> () = |items| items.dedup();
    binary_search(value: T) -> Result<usize, usize> = |items| items.binary_search(&value);
});

methods!(impl[T: Wire + Clone] VecDeque<T> {
    push_back(value: T) -> () = |items| items.push_back(value);
    push_front(value: T) -> () = |items| items.push_front(value);
    pop_back() -> Option<T> = |items| items.pop_back();
    pop_front() -> Option<T> = |items| items.pop_front();
    front() -> Option<T> = |items| items.front().cloned();
    back() -> Option<T> = |items| items.back().cloned();
    remove(index: usize) -> Option<T> = |items| items.remove(index);
    rotate_left(by: usize) -> () = |items| items.rotate_left(by);
    reverse() -> () = |items| items.make_contiguous().reverse();
});
methods!(impl[T: Wire + Clone + Ord] VecDeque<T> {
    contains(value: T) -> bool = |items| items.contains(&value);
    sort() -> () = |items| items.make_contiguous().sort();
    dedup() -> () = |items| {
        // Before the first item is removed, because a comparison may panic.
        let repeats: Vec<bool> = items.iter().zip(items.iter().skip(1)).map(|(one, next)| one == next).collect();
        let mut repeats = std::iter::once(false).chain(repeats);
        items.retain(|_| !repeats.next().unwrap_or_default());
    };
});

/// Methods that maps share.
macro_rules! map {
    ($type:ident, $($key:tt)*) => {
        methods!(impl[K: Wire + Clone + $($key)*, V: Wire + Clone] $type<K, V> {
            len() -> usize = |map| map.len();
            is_empty() -> bool = |map| map.is_empty();
            clear() -> () = |map| map.clear();
            insert(key: K, value: V) -> Option<V> = |map| map.insert(key, value);
            get(key: K) -> Option<V> = |map| map.get(&key).cloned();
            get_or_insert(key: K, value: V) -> V = |map| map.entry(key).or_insert(value).clone();
            contains_key(key: K) -> bool = |map| map.contains_key(&key);
            remove(key: K) -> Option<V> = |map| map.remove(&key);
            extend(entries: Vec<(K, V)>) -> () = |map| map.extend(entries);
        });
    };
}

map!(BTreeMap, Ord);
map!(HashMap, Hash + Eq);

methods!(impl[K: Wire + Clone + Ord, V: Wire + Clone] BTreeMap<K, V> {
    first_key_value() -> Option<(K, V)> = |map| map.first_key_value().map(|(key, value)| (key.clone(), value.clone()));
    last_key_value() -> Option<(K, V)> = |map| map.last_key_value().map(|(key, value)| (key.clone(), value.clone()));
    pop_first() -> Option<(K, V)> = |map| map.pop_first();
    pop_last() -> Option<(K, V)> = |map| map.pop_last();
});

methods!(impl[T: Wire + Clone + Ord] BTreeSet<T> {
    len() -> usize = |set| set.len();
    is_empty() -> bool = |set| set.is_empty();
    clear() -> () = |set| set.clear();
    insert(value: T) -> bool = |set| set.insert(value);
    contains(value: T) -> bool = |set| set.contains(&value);
    remove(value: T) -> bool = |set| set.remove(&value);
    extend(values: Vec<T>) -> () = |set| set.extend(values);
    first() -> Option<T> = |set| set.first().cloned();
    last() -> Option<T> = |set| set.last().cloned();
    pop_first() -> Option<T> = |set| set.pop_first();
    pop_last() -> Option<T> = |set| set.pop_last();
});

methods!(impl[T: Wire + Clone + Ord] Multiset<T> {
    len() -> u64 = |set| set.0.values().sum();
    is_empty() -> bool = |set| set.0.is_empty();
    clear() -> () = |set| set.0.clear();
    insert(value: T) -> u64 = |set| set.insert_many(value, 1);
    count(value: T) -> u64 = |set| set.count(&value);
    remove(value: T) -> bool = |set| set.remove(&value);
    remove_all(value: T) -> u64 = |set| set.0.remove(&value).unwrap_or_default();
    extend(values: Vec<(T, u64)>) -> () = |set| set.extend(values);
});

impl<C: Collection> Remote<C> {
    /// Reads the items in blocks of `block_items`. The next block is on its way while this worker
    /// uses one.
    ///
    /// What is inserted or removed meanwhile may be seen or not. In a set or a map every item that
    /// stays is seen once; in a sequence items move to other places.
    ///
    /// *Cost*: a call and its answer for each block. For a block of a `HashMap`, which has no order
    /// of its own, the owner looks at all keys: use large blocks, or a `BTreeMap`.
    ///
    /// # Panics
    /// If `block_items` is 0.
    #[track_caller]
    pub fn iter(self, me: &Worker, block_items: usize) -> Cursor<'_, C> {
        assert!(block_items > 0, "a cursor reads blocks of at least one item");
        let mut cursor = Cursor { me, of: self, block_items, items: Vec::new().into_iter(), next: None };
        cursor.fetch(None);
        cursor
    }

    /// Moves all items of another collection here, behind those that this one has. Returns their
    /// number.
    ///
    /// This is [`append_range`](Self::append_range) of everything, and so fails if the items do not
    /// fit into a call.
    pub fn append<D: Collection<Item = C::Item>>(self, me: &Worker, from: Remote<D>) -> Answer<'_, usize> {
        self.append_range(me, from, 0..usize::MAX)
    }

    /// Moves a range of another collection here, as [`splice`](Remote::splice) does, and behind the
    /// items that this one has. In a map they replace the values of equal keys.
    ///
    /// To move a large set to another one, move its first items until there are none.
    pub fn append_range<D: Collection<Item = C::Item>>(
        self,
        me: &Worker,
        from: Remote<D>,
        range: Range<usize>,
    ) -> Answer<'_, usize> {
        move_items(me, from, range, self, usize::MAX)
    }
}

/// Implements `splice` for a sequence.
macro_rules! splice {
    ($type:ident) => {
        impl<T: Wire + Clone> Remote<$type<T>> {
            /// Moves a range of another collection here, before the item `at` or to the end, also
            /// when the two are at different workers. Returns the number of moved items. A range
            /// beyond the end has fewer.
            ///
            /// The items go from owner to owner, as one call. At no time both collections have
            /// them, and for a moment none has. They return to their old place if the other owner
            /// refuses them: then the error is [`RemoteError::NotMoved`], [`RemoteError::Gone`] or
            /// [`RemoteError::OtherType`]. A map that has got new values for their keys meanwhile
            /// keeps these. If the process of the new owner is lost meanwhile, they
            /// are lost as if they had arrived ([`RemoteError::LostOnTheWay`]). The loss of this
            /// worker changes nothing.
            ///
            /// More than fit into a call are `NotMoved`: move them in several ranges.
            pub fn splice<D: Collection<Item = T>>(
                self,
                me: &Worker,
                at: usize,
                from: Remote<D>,
                range: Range<usize>,
            ) -> Answer<'_, usize> {
                move_items(me, from, range, self, at)
            }
        }
    };
}

splice!(Vec);
splice!(VecDeque);

/// The answer of a new owner, with the items if it refuses them.
type Given<T> = Result<(), (Vec<T>, RemoteError)>;

/// Moves items from one owner to another. The caller only waits for the outcome.
fn move_items<'w, S: Collection, D: Collection<Item = S::Item>>(
    me: &'w Worker,
    from: Remote<S>,
    range: Range<usize>,
    to: Remote<D>,
    at: usize,
) -> Answer<'w, usize> {
    let sent: Result<Pending<'w, Outcome<usize>>, _> =
        me.to(from.owner()).call_with_reply((from, (range.start, range.end), to, at), send_items::<S, D>);
    Answer::new(me, sent.map_err(Into::into))
}

/// Takes items at their owner and sends them to the other one.
fn send_items<S: Collection, D: Collection<Item = S::Item>>(
    there: &Worker,
    (from, (start, end), to, at): (Remote<S>, (usize, usize), Remote<D>, usize),
    reply: Reply<Outcome<usize>>,
) {
    let items = match from.at_owner(there, |source| source.take(start..end)) {
        Ok(items) => items,
        Err(error) => return reply.send(Err(error)),
    };
    let count = items.len();
    // If the source was freed meanwhile, the items are dropped like the others in it.
    let refuse = move |me: &Worker, items, error, reply: Reply<Outcome<usize>>| {
        let _ = from.at_owner(me, |source| source.give_back(start, items));
        reply.send(Err(error));
    };
    let sent = there.call_return(to.owner(), (to, at, items), |dest, (to, at, items)| {
        let mut items = Some(items);
        let given = to.at_owner(dest, |target| target.give(at, items.take().unwrap_or_default()));
        given.map_err(|error| (items.unwrap_or_default(), error))
    });
    let to = to.owner();
    match sent {
        Err(refused) => {
            let why = refused.error.to_string();
            refuse(there, refused.arguments.2, RemoteError::NotMoved { to, why }, reply);
        }
        Ok(pending) => pending.then(move |me, outcome: Result<Given<S::Item>>| match outcome {
            Ok(Ok(())) => reply.send(Ok(count)),
            Ok(Err((items, error))) => refuse(me, items, error, reply),
            Err(error) => reply.send(Err(RemoteError::LostOnTheWay { to, count, why: error.to_string() })),
        }),
    }
}

/// Reads a [`Remote`] collection in blocks: an iterator. Ends after an error.
pub struct Cursor<'w, C: Collection> {
    me: &'w Worker,
    of: Remote<C>,
    block_items: usize,
    items: vec::IntoIter<C::Item>,
    /// The next block, unless this is the last.
    next: Option<Answer<'w, Block<C>>>,
}

/// Items, and the place of the last.
type Block<C> = (Vec<<C as Collection>::Item>, Option<<C as Collection>::Place>);

impl<C: Collection> Cursor<'_, C> {
    /// Asks for the block behind `last`.
    fn fetch(&mut self, last: Option<C::Place>) {
        let next = self
            .of
            .with(self.me, (last, self.block_items), |items: &mut C, (last, count)| items.block(last.as_ref(), count));
        self.next = Some(next);
    }
}

impl<C: Collection> Iterator for Cursor<'_, C> {
    type Item = Result<C::Item, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(item) = self.items.next() {
            return Some(Ok(item));
        }
        match self.next.take()?.wait() {
            Err(error) => return Some(Err(error)),
            Ok((items, last)) => {
                if items.len() >= self.block_items {
                    self.fetch(last);
                }
                self.items = items.into_iter();
            }
        }
        self.items.next().map(Ok)
    }
}

impl<C: Collection> fmt::Debug for Cursor<'_, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cursor").field("of", &self.of).finish_non_exhaustive()
    }
}
