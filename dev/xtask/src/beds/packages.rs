//! The needs of each bed from the system, and the Debian package that brings each.

use std::collections::BTreeSet;
use std::path::Path;

use farside_testbed::{has_library, has_program};

use super::Bed;

/// A program, library or file of a package.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Thing {
    /// A program in the search path or in the folders of system programs.
    Program(&'static str),
    /// A shared library that the loader knows.
    Library(&'static str),
    /// A file.
    File(&'static str),
}

/// A need of some beds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Need {
    /// The Debian package.
    pub(crate) package: &'static str,
    /// The thing to look for. Other systems than Debian may have it without this package.
    pub(crate) thing: Thing,
    beds: &'static [Bed],
}

const FABRICS: &[Bed] = &[Bed::Fabric, Bed::Netns, Bed::RdmaVm];

const MPI_HEADER: &str = "/usr/lib/x86_64-linux-gnu/openmpi/include/mpi.h";

const NUMPY: &str = "/usr/lib/python3/dist-packages/numpy/__init__.py";
const SETUPTOOLS: &str = "/usr/lib/python3/dist-packages/setuptools/__init__.py";
const WHEEL: &str = "/usr/lib/python3/dist-packages/wheel/__init__.py";

/// All needs.
const NEEDS: [Need; 23] = [
    Need { package: "libfabric1", thing: Thing::Library("libfabric.so.1"), beds: FABRICS },
    Need { package: "libfabric-bin", thing: Thing::Program("fi_pingpong"), beds: FABRICS },
    // A test compares our declarations with these headers.
    Need { package: "libfabric-dev", thing: Thing::File("/usr/include/rdma/fabric.h"), beds: &[Bed::Fabric] },
    Need { package: "gcc", thing: Thing::Program("cc"), beds: &[Bed::Fabric, Bed::Peers] },
    Need { package: "openmpi-bin", thing: Thing::Program("mpirun"), beds: &[Bed::Mpi, Bed::Peers] },
    Need { package: "libopenmpi-dev", thing: Thing::File(MPI_HEADER), beds: &[Bed::Peers] },
    Need { package: "libpmix2", thing: Thing::Library("libpmix.so.2"), beds: &[Bed::Mpi, Bed::Slurm] },
    // Slurm loads the library by a name that only this package has.
    Need { package: "libpmix-dev", thing: Thing::Library("libpmix.so"), beds: &[Bed::Slurm] },
    Need { package: "slurm-wlm", thing: Thing::Program("slurmctld"), beds: &[Bed::Slurm] },
    Need { package: "slurm-wlm", thing: Thing::Program("srun"), beds: &[Bed::Slurm] },
    Need { package: "munge", thing: Thing::Program("munged"), beds: &[Bed::Slurm] },
    Need { package: "iproute2", thing: Thing::Program("ip"), beds: &[Bed::Mpi, Bed::Slurm, Bed::Netns, Bed::RdmaVm] },
    Need { package: "iproute2", thing: Thing::Program("rdma"), beds: &[Bed::RdmaVm] },
    Need { package: "ibverbs-providers", thing: Thing::File("/etc/libibverbs.d/rxe.driver"), beds: &[Bed::RdmaVm] },
    Need { package: "python3-pip", thing: Thing::Program("pip3"), beds: &[Bed::Wheel] },
    Need { package: "chromium", thing: Thing::Program("chromium"), beds: &[Bed::Browser] },
    Need { package: "chromium-driver", thing: Thing::Program("chromedriver"), beds: &[Bed::Browser] },
    Need { package: "python3-pip", thing: Thing::Program("pip3"), beds: &[Bed::Python] },
    Need { package: "python3-numpy", thing: Thing::File(NUMPY), beds: &[Bed::Python] },
    Need { package: "python3-setuptools", thing: Thing::File(SETUPTOOLS), beds: &[Bed::Python] },
    Need { package: "python3-wheel", thing: Thing::File(WHEEL), beds: &[Bed::Python] },
    Need { package: "dpkg", thing: Thing::Program("dpkg-deb"), beds: &[Bed::RdmaVm] },
    Need { package: "xz-utils", thing: Thing::Program("xz"), beds: &[Bed::RdmaVm] },
];

/// Returns the needs of these beds that this machine lacks.
pub(crate) fn missing(beds: &[Bed]) -> Vec<Need> {
    let is_there = |thing| match thing {
        Thing::Program(name) => has_program(name),
        Thing::Library(name) => has_library(name),
        Thing::File(path) => Path::new(path).exists(),
    };
    NEEDS.into_iter().filter(|need| need.is_of(beds) && !is_there(need.thing)).collect()
}

/// Returns the packages to install, each once.
pub(crate) fn packages(needs: &[Need]) -> BTreeSet<&'static str> {
    needs.iter().map(|need| need.package).collect()
}

/// Returns the beds that do not work without these needs.
pub(crate) fn beds_lacking(needs: &[Need], beds: &[Bed]) -> Vec<Bed> {
    beds.iter().copied().filter(|bed| needs.iter().any(|need| need.beds.contains(bed))).collect()
}

impl Need {
    fn is_of(&self, beds: &[Bed]) -> bool {
        self.beds.iter().any(|bed| beds.contains(bed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bed_has_needs_and_no_bed_has_none() {
        for bed in Bed::ALL {
            assert!(NEEDS.iter().any(|need| need.is_of(&[bed])), "{bed}");
        }
        assert!(missing(&[]).is_empty());
    }

    #[test]
    fn only_the_beds_that_lack_something_are_named() {
        let need = Need { package: "munge", thing: Thing::Program("munged"), beds: &[Bed::Slurm] };
        assert_eq!(beds_lacking(&[need], &Bed::ALL), [Bed::Slurm]);
        assert!(beds_lacking(&[need], &[Bed::Mpi]).is_empty());
    }
}
