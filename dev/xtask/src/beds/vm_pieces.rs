//! The pieces of the emulated machine: the emulator, a kernel with its modules, and a shell for its
//! first steps. They come from Debian packages that are unpacked under the target folder.
//!
//! The packages are not installed, because they could replace an emulator or a kernel of the
//! developer.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use farside_testbed::{Failure, ended_with_us, run};

use super::setup::{apt_get, update_lists};
use super::target_dir;

/// The time limit of one step of fetching.
const STEP_LIMIT: Duration = Duration::from_secs(900);

/// The packages to unpack, together with their dependencies that are not installed.
const PACKAGES: [&str; 2] = ["qemu-system-x86", "busybox-static"];

/// Packages that may conflict with `PACKAGES`. They count as not installed.
const CLASHING: [&str; 2] = ["qemu", "busybox"];

/// The modules to load, in this order, each after its dependencies. soft-RoCE needs `crc32_generic`
/// without declaring it. `dummy` is its network device. The last modules share folders with the
/// host.
const MODULES: [&str; 8] =
    ["crc32_generic", "virtio_pci", "dummy", "udp_tunnel", "rdma_rxe", "rdma_ucm", "9pnet_virtio", "9p"];

/// The name of the file that replaces the list of installed packages for `apt-get`.
const INSTALLED: &str = "status";

/// The pieces, unpacked.
#[derive(Clone, Debug)]
pub(crate) struct Pieces {
    home: PathBuf,
}

impl Pieces {
    /// The root of the unpacked packages.
    pub(crate) fn root(&self) -> PathBuf {
        self.home.join("root")
    }

    /// A statically linked shell with its tools.
    pub(crate) fn busybox(&self) -> PathBuf {
        self.root().join("bin/busybox")
    }

    /// The kernel.
    pub(crate) fn kernel(&self) -> PathBuf {
        self.home.join("kernel")
    }

    /// The modules in the order of loading.
    pub(crate) fn modules(&self) -> io::Result<Vec<PathBuf>> {
        let entries = fs::read_dir(self.home.join("modules"))?;
        let mut modules = entries.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
        modules.sort_unstable();
        Ok(modules)
    }
}

/// Returns the pieces. Downloads them if necessary.
pub(crate) fn fetch() -> Result<Pieces, Failure> {
    let step = "fetching the emulated machine";
    let beds = target_dir().map_err(|cause| Failure::new(step, cause))?.join("beds");
    let pieces = Pieces { home: beds.join("vm-pieces") };
    if pieces.home.is_dir() {
        return Ok(pieces);
    }
    let begun = Instant::now();
    println!("xtask: downloading an emulator and a kernel into {}", pieces.home.display());
    // Made in a temporary folder and renamed when complete, so that an interrupted run leaves
    // nothing incomplete.
    let draft = beds.join(format!("vm-pieces-{}", std::process::id()));
    let made = assemble(&draft).or_else(|first| {
        // The package lists may be missing or old.
        println!("xtask: trying again with new package lists: {first}");
        let _ = fs::remove_dir_all(&draft);
        update_lists()?;
        assemble(&draft)
    });
    let moved = made.and_then(|()| fs::rename(&draft, &pieces.home).map_err(|error| Failure::new(step, error)));
    if moved.is_ok() {
        println!("xtask: emulator and kernel are ready after {:.0} s", begun.elapsed().as_secs_f64());
        return Ok(pieces);
    }
    let _ = fs::remove_dir_all(&draft);
    // Another run may have finished first.
    if pieces.home.is_dir() { Ok(pieces) } else { moved.map(|()| pieces) }
}

fn assemble(draft: &Path) -> Result<(), Failure> {
    let attempt = |step: &str, done: io::Result<()>| done.map_err(|error| Failure::new(step, error));
    let (archives, root, kernel_root) = (draft.join("archives"), draft.join("root"), draft.join("kernel-root"));
    for folder in [&archives, &root, &draft.join("modules")] {
        attempt("making a folder", fs::create_dir_all(folder))?;
    }
    let kernel = kernel_package()?;
    let mut wanted = closure(draft)?;
    wanted.push(kernel.clone());
    let mut download = apt_get();
    download.current_dir(&archives).args(["-q", "download"]).args(&wanted);
    run("apt-get download", &mut download, STEP_LIMIT)?;
    for entry in fs::read_dir(&archives).into_iter().flatten().flatten() {
        let is_kernel = entry.file_name().to_string_lossy().starts_with(&kernel);
        let place = if is_kernel { &kernel_root } else { &root };
        run("dpkg-deb --extract", ended_with_us("dpkg-deb").arg("-x").arg(entry.path()).arg(place), STEP_LIMIT)?;
    }
    attempt("unpacking the kernel", take_kernel(&kernel_root, draft))?;
    attempt("picking the modules", take_modules(&kernel_root, &draft.join("modules")))?;
    for done_with in [&archives, &kernel_root] {
        attempt("clearing up", fs::remove_dir_all(done_with))?;
    }
    attempt("clearing up", fs::remove_file(draft.join(INSTALLED)))?;
    Ok(())
}

/// Returns the name of the package with the current kernel.
fn kernel_package() -> Result<String, Failure> {
    let mut command = ended_with_us("apt-cache");
    let printed = run("apt-cache depends", command.args(["depends", "linux-image-amd64"]), STEP_LIMIT)?;
    let name = printed.lines().find_map(|line| line.trim().strip_prefix("Depends: "));
    name.map(str::to_owned).ok_or_else(|| Failure::new("apt-cache depends linux-image-amd64", "names no kernel"))
}

/// Returns the packages to unpack, as `PACKAGE=VERSION`. Asks `apt-get` what it would install if no
/// conflicting package were installed. If that fails, asks what it would install on an empty
/// system.
fn closure(draft: &Path) -> Result<Vec<String>, Failure> {
    let status = fs::read_to_string("/var/lib/dpkg/status").unwrap_or_default();
    let mut last = None;
    for known in [without_clashing(&status).as_str(), ""] {
        let file = draft.join(INSTALLED);
        fs::write(&file, known).map_err(|error| Failure::new("writing a package list", error))?;
        let mut command = apt_get();
        command.arg("-o").arg(format!("Dir::State::status={}", file.display()));
        command.args(["--simulate", "--yes", "--no-install-recommends", "install"]).args(PACKAGES);
        match run("apt-get --simulate install", &mut command, STEP_LIMIT) {
            Ok(printed) => return Ok(printed.lines().filter_map(to_be_installed).collect()),
            Err(failure) => last = Some(failure),
        }
    }
    Err(last.unwrap_or_else(|| Failure::new("apt-get --simulate install", "was not asked")))
}

fn without_clashing(status: &str) -> String {
    let clashes = |stanza: &str| {
        let name = stanza.lines().find_map(|line| line.strip_prefix("Package: ")).unwrap_or_default();
        CLASHING.iter().any(|clashing| name.starts_with(clashing))
    };
    status.split("\n\n").filter(|stanza| !clashes(stanza)).map(|stanza| format!("{stanza}\n\n")).collect()
}

/// Reads a line of the form `Inst NAME [OLD] (NEW ...)`.
fn to_be_installed(line: &str) -> Option<String> {
    let rest = line.strip_prefix("Inst ")?;
    let (name, rest) = rest.split_once(' ')?;
    let version = rest.split_once('(')?.1.split_whitespace().next()?;
    Some(format!("{name}={version}"))
}

/// Writes the kernel uncompressed. An emulated processor would take seconds to decompress it.
fn take_kernel(kernel_root: &Path, draft: &Path) -> io::Result<()> {
    let mut boot = fs::read_dir(kernel_root.join("boot"))?.flatten().map(|entry| entry.path());
    let is_image = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("vmlinuz"));
    let image = boot.find(is_image).ok_or_else(|| io::Error::other("the package has no vmlinuz"))?;
    let bytes = fs::read(&image)?;
    let (packed, plain) = (draft.join("packed"), draft.join("kernel"));
    let magic = b"\xfd7zXZ\0";
    for (start, _) in bytes.windows(magic.len()).enumerate().filter(|(_, window)| window == magic) {
        fs::write(&packed, &bytes[start..])?;
        let kernel = unpacked(&packed)?;
        fs::remove_file(&packed)?;
        if kernel.starts_with(b"\x7fELF") {
            return fs::write(&plain, kernel);
        }
    }
    // Compressed in another way: the kernel decompresses itself.
    fs::write(&plain, bytes)
}

/// Decompresses the beginning of a file. Ignores the status of `xz`, because other data follows the
/// compressed kernel.
fn unpacked(packed: &Path) -> io::Result<Vec<u8>> {
    let mut xz = Command::new("xz");
    xz.args(["--decompress", "--stdout", "--single-stream"]).stdin(File::open(packed)?).stderr(Stdio::null());
    Ok(xz.output()?.stdout)
}

/// Copies the modules, numbered so that each comes after its dependencies.
fn take_modules(kernel_root: &Path, into: &Path) -> io::Result<()> {
    let mut found = BTreeMap::new();
    find_modules(kernel_root, &mut found)?;
    let mut taken = Vec::new();
    for name in MODULES {
        take_module(name, &found, into, &mut taken)?;
    }
    Ok(())
}

fn take_module(name: &str, found: &BTreeMap<String, PathBuf>, into: &Path, taken: &mut Vec<String>) -> io::Result<()> {
    let name = name.replace('-', "_");
    // A missing module may be part of the kernel. If it is not, the machine reports it.
    let Some(path) = found.get(&name).filter(|_| !taken.contains(&name)) else { return Ok(()) };
    let is_packed = path.extension().is_some_and(|extension| extension == "xz");
    let module = if is_packed { unpacked(path)? } else { fs::read(path)? };
    for needed in dependencies(&module) {
        take_module(&needed, found, into, taken)?;
    }
    fs::write(into.join(format!("{:02}-{name}.ko", taken.len())), module)?;
    taken.push(name);
    Ok(())
}

fn find_modules(folder: &Path, found: &mut BTreeMap<String, PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            find_modules(&entry.path(), found)?;
        } else if let Some((name, "" | ".xz")) = entry.file_name().to_string_lossy().split_once(".ko") {
            found.insert(name.replace('-', "_"), entry.path());
        }
    }
    Ok(())
}

/// Returns the names after `depends=` in the information of a module.
fn dependencies(module: &[u8]) -> Vec<String> {
    let key = b"\0depends=";
    let Some(at) = module.windows(key.len()).position(|window| window == key) else { return Vec::new() };
    let names = module[at + key.len()..].split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(names).split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clashing_packages_count_as_absent() {
        let status = "Package: qemu-utils\nStatus: x\n\nPackage: zlib\nStatus: y\n\nPackage: busybox\nStatus: z\n";
        assert_eq!(without_clashing(status).trim(), "Package: zlib\nStatus: y");
    }

    #[test]
    fn the_plan_of_apt_is_read() {
        assert_eq!(to_be_installed("Inst a (1:2+b3 Debian:12/oldstable [amd64])").as_deref(), Some("a=1:2+b3"));
        assert_eq!(to_be_installed("Inst a [1] (2 Debian [all]) []").as_deref(), Some("a=2"));
        assert_eq!(to_be_installed("Conf a (2 Debian [all])"), None);
    }

    #[test]
    fn modules_name_what_they_need() {
        assert_eq!(dependencies(b"..\0depends=ib_core,udp_tunnel\0x"), ["ib_core", "udp_tunnel"]);
        assert!(dependencies(b"license=GPL\0depends=\0x").is_empty());
        assert!(dependencies(b"nothing").is_empty());
    }
}
