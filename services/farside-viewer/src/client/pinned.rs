//! [`Pinned`]: elements of a step, read in place.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::PathBuf;
use std::time::Instant;

use farside_inspect::__private::protocol::Got;
use farside_inspect::__private::spans::Span;
use farside_inspect::{ElementType, Field, Role};
use farside_rpc::bulk::{Bulk, Mapped, Read};

use super::area::{Area, At, Attempt, Gathered};
use super::error::InspectError;
use crate::selection::{Places, Selection};

/// The most parts that are pinned at once.
const PARTS_MAX: usize = 32;

/// One worker's part of a view at one step, in memory of its process that this process maps for
/// reading: [`Area::pin`].
///
/// The program writes nothing there while this is valid: it copies later steps elsewhere. A view
/// has three such memories. Who keeps one for longer than 2 s loses it when other readers need it:
/// what is there then belongs to another step. So look whether it [is valid](Self::is_valid)
/// *after* you have read. Dropping it gives the memory back.
#[derive(Debug)]
pub struct Pinned {
    name: String,
    step: u64,
    element: ElementType,
    fields: Vec<Field>,
    shape: Vec<u64>,
    places: Vec<Places>,
    block: Vec<(u64, u64)>,
    memory: Bulk<Read>,
    mapped: Mapped,
}

impl<T> Area<T> {
    /// Pins a step of the part in which the selected elements are, without copying them.
    ///
    /// # Errors
    /// [`InspectError`], as for [`get`](Area::get); `NotMapped` if the elements belong to several
    /// workers, if the area is no view, and if its part is small, since small ones travel with
    /// the answer.
    pub fn pin(&self, selection: &Selection, at: At) -> Result<Pinned, InspectError> {
        let mut pinned = self.pin_pieces(selection, at, 1)?;
        Ok(pinned.remove(0))
    }

    /// The same for elements of several workers: pins one step of all their parts. Each says by
    /// [`block`](Pinned::block) where its elements are in what is selected. So a program that puts
    /// them together copies each element once.
    ///
    /// # Errors
    /// [`InspectError`], as for [`pin`](Self::pin); `NotMapped` for more than 32 workers.
    pub fn pin_all(&self, selection: &Selection, at: At) -> Result<Vec<Pinned>, InspectError> {
        self.pin_pieces(selection, at, PARTS_MAX)
    }

    fn pin_pieces(&self, selection: &Selection, at: At, count_max: usize) -> Result<Vec<Pinned>, InspectError> {
        let deadline = Instant::now() + self.inspector.time();
        let not_mapped = |why| InspectError::NotMapped { name: self.info.name.clone(), why };
        if self.info.role != Role::View {
            return Err(not_mapped("only the steps of views stay as they are"));
        }
        let selected = selection.of(&self.info.shape)?;
        let mut pieces = self.all_pieces(&selected)?;
        if pieces.is_empty() || pieces.len() > count_max {
            return Err(not_mapped("it is in the memories of several workers"));
        }
        let mut described = BTreeMap::new();
        for piece in &mut pieces {
            let places = selected.places(std::mem::take(&mut piece.spans));
            let block = piece.block.iter().map(|span| (span.start, span.count)).unzip::<u64, u64, Vec<_>, Vec<_>>();
            let block = selected.kept(&block.0).into_iter().zip(selected.kept(&block.1)).collect();
            let part = self.info.parts.iter().find(|part| part.worker == piece.worker);
            let shape = part.map(|part| part.shape.clone()).unwrap_or_default();
            piece.spans = shape.iter().map(|length| Span { start: 0, step: 1, count: *length }).collect();
            described.insert(piece.worker, (places, block, shape));
        }
        let mut found = Vec::new();
        let step = self.read(&mut pieces, at, deadline, |pieces, wish| {
            Ok(match self.gather(pieces, wish, deadline)? {
                Gathered::Passed(step) => Attempt::Passed(step),
                Gathered::Step(step, got) => {
                    found = pieces.iter().map(|piece| piece.worker).zip(got).collect();
                    Attempt::Step(step)
                }
            })
        })?;
        let pinned = |(worker, got): (u32, Got)| {
            let (places, block, shape) = described.remove(&worker).ok_or_else(|| not_mapped("it has no elements"))?;
            let memory = got.elements;
            let mapped =
                memory.mapped().ok_or_else(|| not_mapped("it is small, or the process shows too much at once"))?;
            let expected = shape.iter().product::<u64>() * self.info.element.bytes() as u64;
            if mapped.bytes() as u64 != expected {
                return Err(not_mapped("its process describes it in another way, and may run another version"));
            }
            let (name, element, fields) = (self.info.name.clone(), self.info.element, self.info.fields.clone());
            Ok(Pinned { name, step, element, fields, shape, places, block, memory, mapped })
        };
        found.into_iter().map(pinned).collect()
    }
}

impl Pinned {
    /// The name of the area.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The step.
    #[must_use]
    pub fn step(&self) -> u64 {
        self.step
    }

    /// The type of the elements.
    #[must_use]
    pub fn element(&self) -> ElementType {
        self.element
    }

    /// The fields of that type, if it is a struct.
    #[must_use]
    pub fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// The shape of the worker's part, which lies in the memory in row-major order.
    #[must_use]
    pub fn shape(&self) -> &[u64] {
        &self.shape
    }

    /// The places in the part that were selected, by dimension.
    #[must_use]
    pub fn places(&self) -> &[Places] {
        &self.places
    }

    /// Where these places are in what was selected: the first one and their number, by dimension of
    /// that.
    #[must_use]
    pub fn block(&self) -> &[(u64, u64)] {
        &self.block
    }

    /// Returns whether the memory has been this step's up to now.
    ///
    /// *Cost.* Up to one system call.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.memory.is_valid()
    }

    /// Copies bytes of the part, from an offset on. Returns false if it is not valid any more, or
    /// if the range is not inside.
    pub fn copy_to(&self, offset: usize, into: &mut [u8]) -> bool {
        self.mapped.copy_to(offset, into).is_ok() && self.is_valid()
    }

    /// Where the part begins in its [file](Self::file).
    #[must_use]
    pub fn offset(&self) -> usize {
        self.mapped.offset()
    }

    /// The file of the memory, which other programs of this user may open and map for reading while
    /// this lives.
    #[must_use]
    pub fn file(&self) -> PathBuf {
        format!("/proc/{}/fd/{}", std::process::id(), self.as_fd().as_raw_fd()).into()
    }
}

impl AsFd for Pinned {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.mapped.as_fd()
    }
}
