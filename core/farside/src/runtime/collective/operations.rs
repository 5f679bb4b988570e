//! The algorithms of collectives, over trees and by dissemination. `collective.rs` says what they
//! do.

use std::marker::PhantomData;

use farside_fabric::WorkerId;

use super::group::{Group, Parts, Shape};
use super::state::{Content, Kind};
use super::team::Team;
use crate::error::{Error, Result};
use crate::wire::{Wire, WireError};

impl Group<'_> {
    pub(super) fn barrier(self) -> Result<()> {
        self.may_begin(Kind::Barrier.name())?;
        let epoch = self.me.access_epoch();
        let number = self.sequence().begin(Content::default());
        for round in 0..self.rounds() {
            self.announce(number, round)?;
            self.wait_for_all("waiting at a barrier", self.behind(1 << round), || {
                self.sequence().is_announced(round as usize).then_some(())
            })?;
        }
        if self.is_all() {
            self.me.all_know_accesses(epoch);
        }
        self.wait_until_sent((0..self.rounds()).map(|round| self.ahead(1 << round)))
    }

    pub(super) fn broadcast<T: Wire + Clone>(self, root: WorkerId, value: Option<T>) -> Result<T> {
        self.spread(root, value, Shape::value::<T>())
    }

    pub(super) fn broadcast_slice<T: Wire + Clone>(self, root: WorkerId, values: &mut [T]) -> Result<()> {
        let own = (self.me.id() == root).then(|| values.to_vec());
        replace(values, self.spread(root, own, Shape::slice(values))?);
        Ok(())
    }

    fn spread<T: Wire + Clone>(self, root: WorkerId, value: Option<T>, shape: Shape) -> Result<T> {
        let (parts, root) = self.begin(Kind::Broadcast, root, shape)?;
        self.pass_down(&parts, root, value, "the root of a broadcast must pass a value")
    }

    pub(super) fn gather<T: Wire>(self, root: WorkerId, value: T) -> Result<Option<Vec<T>>> {
        self.collect(root, value, Shape::value::<T>())
    }

    pub(super) fn gather_slice<T: Wire + Clone>(self, root: WorkerId, values: &[T]) -> Result<Option<Vec<T>>> {
        Ok(self.collect(root, values.to_vec(), Shape::slice(values))?.map(|parts| parts.concat()))
    }

    fn collect<T: Wire>(self, root: WorkerId, value: T, shape: Shape) -> Result<Option<Vec<T>>> {
        let (parts, place) = self.begin(Kind::Gather, root, shape)?;
        if self.place() != place {
            self.send_value(&parts, root, value)?;
            self.wait_until_sent([root].into_iter())?;
            return Ok(None);
        }
        let mut own = Some(value);
        let mut gathered = Vec::with_capacity(self.count());
        for from in self.members() {
            gathered.push(match own.take_if(|_| from == root) {
                Some(own) => own,
                None => self.receive(&parts, from)?,
            });
        }
        Ok(Some(gathered))
    }

    pub(super) fn all_reduce<T: Wire + Clone>(self, value: T, combine: impl FnMut(T, T) -> T) -> Result<T> {
        self.reduce_for_all(Kind::AllReduce, value, combine, || Shape::value::<T>())
    }

    pub(super) fn all_reduce_slice<T: Wire + Clone>(
        self,
        values: &mut [T],
        combine: impl FnMut(T, T) -> T,
    ) -> Result<()> {
        let reduced =
            self.reduce_for_all(Kind::AllReduce, values.to_vec(), elementwise(combine), || Shape::slice(values))?;
        replace(values, reduced);
        Ok(())
    }

    pub(super) fn reduce_for_all<T: Wire + Clone>(
        self,
        kind: Kind,
        value: T,
        combine: impl FnMut(T, T) -> T,
        shape: impl Fn() -> Shape,
    ) -> Result<T> {
        let (up, first) = self.begin(kind, self.at(0), shape())?;
        let combined = self.pass_up(&up, value, combine)?;
        // The result comes down as a second collective: a value is identified only by the number of
        // its collective and its sender.
        let (down, _) = self.begin(kind, self.at(0), shape())?;
        self.pass_down(&down, first, combined, "the first member has the result")
    }

    pub(super) fn reduce<T: Wire>(self, root: WorkerId, value: T, combine: impl FnMut(T, T) -> T) -> Result<Option<T>> {
        self.reduce_at(root, value, combine, Shape::value::<T>())
    }

    pub(super) fn reduce_slice<T: Wire + Clone>(
        self,
        root: WorkerId,
        values: &mut [T],
        combine: impl FnMut(T, T) -> T,
    ) -> Result<()> {
        let reduced = self.reduce_at(root, values.to_vec(), elementwise(combine), Shape::slice(values))?;
        replace(values, reduced.unwrap_or_default());
        Ok(())
    }

    /// Combines at the first member, so that the order of the values is that of the members. The
    /// first member then sends the result to the root, from which it has received nothing.
    fn reduce_at<T: Wire>(
        self,
        root: WorkerId,
        value: T,
        combine: impl FnMut(T, T) -> T,
        shape: Shape,
    ) -> Result<Option<T>> {
        let (parts, place) = self.begin(Kind::Reduce, root, shape)?;
        let (first, is_root) = (self.at(0), self.place() == place);
        match self.pass_up(&parts, value, combine)? {
            Some(reduced) if is_root => return Ok(Some(reduced)),
            Some(reduced) => self.send_value(&parts, root, reduced)?,
            None if is_root => return self.receive(&parts, first).map(Some),
            None => {}
        }
        self.wait_until_sent([self.parent(0).unwrap_or(root)].into_iter())?;
        Ok(None)
    }

    /// Combines the values of this member and of those below it in the tree, in the order of the
    /// members. The first member gets the result.
    fn pass_up<T: Wire>(self, parts: &Parts<T>, value: T, mut combine: impl FnMut(T, T) -> T) -> Result<Option<T>> {
        let mut combined = value;
        for child in self.children(0) {
            combined = combine(combined, self.receive(parts, child)?);
        }
        match self.parent(0) {
            None => Ok(Some(combined)),
            Some(parent) => self.send_value(parts, parent, combined).map(|()| None),
        }
    }

    /// Passes the value of the root down the tree.
    fn pass_down<T: Wire + Clone>(self, parts: &Parts<T>, root: usize, value: Option<T>, none: &str) -> Result<T> {
        let value = match self.parent(root) {
            None => value.expect(none),
            Some(parent) => self.receive(parts, parent)?,
        };
        let children = self.children(root);
        for child in &children {
            self.send_value(parts, *child, value.clone())?;
        }
        self.wait_until_sent(children.into_iter())?;
        Ok(value)
    }

    pub(super) fn scan<T: Wire + Clone>(self, value: T, mut combine: impl FnMut(T, T) -> T) -> Result<T> {
        let before = self.combine_before(Kind::Scan, &value, &mut combine, Shape::value::<T>())?;
        Ok(match before {
            Some(before) => combine(before, value),
            None => value,
        })
    }

    pub(super) fn scan_slice<T: Wire + Clone>(self, values: &mut [T], combine: impl FnMut(T, T) -> T) -> Result<()> {
        let (own, mut combine) = (values.to_vec(), elementwise(combine));
        if let Some(before) = self.combine_before(Kind::Scan, &own, &mut combine, Shape::slice(values))? {
            replace(values, combine(before, own));
        }
        Ok(())
    }

    pub(super) fn exclusive_scan<T: Wire + Clone>(
        self,
        value: T,
        mut combine: impl FnMut(T, T) -> T,
    ) -> Result<Option<T>> {
        self.combine_before(Kind::ExclusiveScan, &value, &mut combine, Shape::value::<T>())
    }

    pub(super) fn exclusive_scan_slice<T: Wire + Clone>(
        self,
        values: &mut [T],
        combine: impl FnMut(T, T) -> T,
    ) -> Result<()> {
        let (own, mut combine) = (values.to_vec(), elementwise(combine));
        let before = self.combine_before(Kind::ExclusiveScan, &own, &mut combine, Shape::slice(values))?;
        replace(values, before.unwrap_or_default());
        Ok(())
    }

    /// Combines the values of the members before this one. In each round a member knows the values
    /// of the last `distance - 1` members before it, and passes them on with its own.
    fn combine_before<T: Wire + Clone>(
        self,
        kind: Kind,
        own: &T,
        combine: &mut impl FnMut(T, T) -> T,
        shape: Shape,
    ) -> Result<Option<T>> {
        let (parts, _) = self.begin(kind, self.at(0), shape)?;
        let (place, mut before) = (self.place(), None);
        let distances = (0..self.rounds()).map(|round| 1 << round);
        let receivers = distances.clone().map(|distance| place + distance).filter(|to| *to < self.count());
        for distance in distances {
            if place + distance < self.count() {
                let known = match before.clone() {
                    Some(before) => combine(before, own.clone()),
                    None => own.clone(),
                };
                self.send_value(&parts, self.at(place + distance), known)?;
            }
            if let Some(from) = place.checked_sub(distance) {
                let earlier = self.receive(&parts, self.at(from))?;
                before = Some(match before {
                    Some(before) => combine(earlier, before),
                    None => earlier,
                });
            }
        }
        self.wait_until_sent(receivers.map(|to| self.at(to)))?;
        Ok(before)
    }

    pub(super) fn all_gather<T: Wire + Clone>(self, value: T) -> Result<Vec<T>> {
        self.exchange(Kind::AllGather, value, Shape::value::<T>())
    }

    pub(super) fn all_gather_slice<T: Wire + Clone>(self, values: &[T]) -> Result<Vec<T>> {
        Ok(self.exchange(Kind::AllGather, values.to_vec(), Shape::slice(values))?.concat())
    }

    /// Waits until all members have begun a collective of this kind for the same type.
    pub(super) fn meet<T: 'static>(self, kind: Kind) -> Result<()> {
        self.exchange(kind, PhantomData::<fn() -> T>, Shape::value::<T>()).map(drop)
    }

    /// Gathers the values of all members. In each round a member gets what the one `distance`
    /// places after it knows: the values of that one and of those behind it.
    fn exchange<T: Wire + Clone>(self, kind: Kind, value: T, shape: Shape) -> Result<Vec<T>> {
        let (parts, _) = self.begin::<Vec<T>>(kind, self.at(0), shape)?;
        let mut known = vec![value];
        while known.len() < self.count() {
            let distance = known.len();
            let more = distance.min(self.count() - distance);
            self.send_value(&parts, self.behind(distance), known[..more].to_vec())?;
            let from = self.ahead(distance);
            let received = self.receive(&parts, from)?;
            if received.len() != more {
                let cause = WireError::invalid::<Vec<T>>(received.len() as u64);
                return Err(self.failed(Error::Wire { from, cause }));
            }
            known.extend(received);
        }
        self.wait_until_sent((0..self.rounds()).map(|round| self.behind(1 << round)))?;
        known.rotate_right(self.place());
        Ok(known)
    }

    pub(super) fn scatter<T: Wire>(self, root: WorkerId, values: Option<Vec<T>>) -> Result<T> {
        self.hand_out(root, values, Shape::value::<T>())
    }

    pub(super) fn scatter_slice<T: Wire + Clone>(self, root: WorkerId, from: &[T], into: &mut [T]) -> Result<()> {
        let blocks = (self.me.id() == root).then(|| self.blocks(from));
        assert!(
            blocks.is_none() || from.len() == into.len() * self.count(),
            "the root of a scatter must pass all parts"
        );
        replace(into, self.hand_out(root, blocks, Shape::slice(into))?);
        Ok(())
    }

    fn hand_out<T: Wire>(self, root: WorkerId, values: Option<Vec<T>>, shape: Shape) -> Result<T> {
        let (parts, place) = self.begin(Kind::Scatter, root, shape)?;
        if self.place() != place {
            return self.receive(&parts, root);
        }
        let mut values = values.expect("the root of a scatter must pass values");
        assert_eq!(values.len(), self.count(), "the root of a scatter must pass a value for each member");
        let own = values.remove(place);
        let others = self.members().filter(|member| *member != root);
        for (to, value) in others.clone().zip(values) {
            self.send_value(&parts, to, value)?;
        }
        self.wait_until_sent(others)?;
        Ok(own)
    }

    pub(super) fn all_to_all<T: Wire>(self, values: Vec<T>) -> Result<Vec<T>> {
        self.swap(values, Shape::value::<T>())
    }

    pub(super) fn all_to_all_slice<T: Wire + Clone>(self, values: &mut [T]) -> Result<()> {
        let swapped = self.swap(self.blocks(values), Shape::slice(values))?;
        replace(values, swapped.concat());
        Ok(())
    }

    /// Sends the value at each place to that member, and puts what comes from it there.
    fn swap<T: Wire>(self, values: Vec<T>, shape: Shape) -> Result<Vec<T>> {
        assert_eq!(values.len(), self.count(), "all_to_all takes a value for each member");
        let (parts, _) = self.begin(Kind::AllToAll, self.at(0), shape)?;
        let (place, count) = (self.place(), self.count());
        let mut values: Vec<_> = values.into_iter().map(Some).collect();
        // The members begin at different ones, so that none gets all messages at once.
        let others = (1..count).map(|distance| (place + distance) % count);
        for to in others.clone() {
            let value = values[to].take().expect("each is sent once");
            self.send_value(&parts, self.at(to), value)?;
        }
        for from in others.clone().rev() {
            values[from] = Some(self.receive(&parts, self.at(from))?);
        }
        self.wait_until_sent(others.map(|to| self.at(to)))?;
        Ok(values.into_iter().flatten().collect())
    }

    /// Divides a slice into a block for each member.
    fn blocks<T: Clone>(self, values: &[T]) -> Vec<Vec<T>> {
        let length = values.len() / self.count();
        assert_eq!(length * self.count(), values.len(), "the slice needs blocks of the same length for all members");
        (0..self.count()).map(|place| values[place * length..][..length].to_vec()).collect()
    }

    pub(super) fn split(self, colour: u64, key: u64) -> Result<Team> {
        let all = self.exchange(Kind::Split, (colour, key), Shape::value::<(u64, u64)>())?;
        let alike = all.into_iter().zip(self.members()).enumerate().filter(|(_, ((other, _), _))| *other == colour);
        let mut members: Vec<_> = alike.map(|(place, ((_, key), member))| (key, place, member)).collect();
        members.sort_unstable();
        let (parent, number) = (self.name(), self.sequence().begun);
        Team::new(self.me, [parent, number], members.into_iter().map(|(.., member)| member).collect())
    }
}

/// Combines the elements at the same index of two slices.
fn elementwise<T>(mut combine: impl FnMut(T, T) -> T) -> impl FnMut(Vec<T>, Vec<T>) -> Vec<T> {
    move |one, other| one.into_iter().zip(other).map(|(one, other)| combine(one, other)).collect()
}

/// Replaces the elements of a slice by those of a result, if there is one. Only another binary
/// could send a result of another length than it has announced.
fn replace<T>(values: &mut [T], result: Vec<T>) {
    values.iter_mut().zip(result).for_each(|(value, result)| *value = result);
}
