//! The role of this process: the launcher of a job, or one process of it.
//!
//! A launcher describes the role of its children in their environment, and leaves the control link
//! open under a descriptor number. Their own children inherit the environment too. So a process
//! trusts it only if its parent is the launcher that the environment names.
//!
//! Any other process may have been started by another launcher, such as `mpirun`. It then takes its
//! place in the job by a [rendezvous](crate::rendezvous).
//!
//! # The one piece of process-wide state
//!
//! A process has one environment and one inherited descriptor. The code that takes the descriptor
//! must know that it was not taken before, and a second job must know of the first. So the static
//! `TAKEN_ROLE` records what this process has become. The first job of the process writes it once;
//! no job's work depends on it after that.

use std::os::fd::RawFd;
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};

use farside_fabric::{ProcessId, ofi};
use farside_sys::net::MessageSocket;
use farside_sys::process::{set_default_environment, take_inherited};

use crate::control::{Control, SocketControl, ToCoordinator};
use crate::error::{LaunchError as Error, Result};
use crate::kill_point::KillPlan;
use crate::member::{Member, TransportChoice};
use crate::rendezvous::{Hosting, PlaceSource};
use crate::settings::{self, Choices, Lookup, own_environment, variable};

const PROCESS: &str = "FARSIDE_PROCESS";
const CONTROL: &str = "FARSIDE_CONTROL";
const LAUNCHER: &str = "FARSIDE_LAUNCHER";
const SITE: &str = "FARSIDE_SITE";

/// The role that this process took with its first job.
static TAKEN_ROLE: Mutex<Option<TakenRole>> = Mutex::new(None);

#[derive(Debug)]
enum TakenRole {
    /// The process launched a job that starts by running the program again with the same arguments.
    Launched {
        /// The place of that job in the source.
        first: String,
    },
    /// The process reached the job for which it was started. The link stays open until the process
    /// ends, so that the process can report later errors to the launcher.
    Joined { first: String, control: Arc<dyn Control>, is_host: bool },
    /// The process was started for a job and could not join it. It must not launch jobs instead.
    Failed { why: String },
}

/// The method by which the processes of a job are started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartMethod {
    /// By running the program with the launcher's own arguments.
    Again,
    /// By running the program with arguments that lead to this job.
    Entry,
}

/// The role of this process in a job.
#[derive(Debug)]
pub enum Role {
    /// The process starts the job.
    Launcher,
    /// The process is this one of the job.
    Member(Member),
    /// The process is process 0, and coordinates the job for the others.
    Host(Member, Hosting),
}

/// Returns the role of this process in the job at `site`, for which the program sets `choices`.
///
/// # Errors
/// - [`Error::SecondJob`], [`Error::WrongJob`].
/// - [`Error::JobEnded`] if the launcher's data for this process is missing or invalid.
/// - [`Error::JobShape`] for an impossible shape.
pub fn role(site: &str, method: StartMethod, choices: Choices) -> Result<Role> {
    let mut taken = TAKEN_ROLE.lock().unwrap_or_else(PoisonError::into_inner);
    match &*taken {
        Some(TakenRole::Failed { why }) => Err(Error::JobEnded { why: why.clone() }),
        Some(TakenRole::Joined { first, control, .. }) => Err(reported(second_job(first, site), &**control)),
        Some(TakenRole::Launched { first }) if method == StartMethod::Again => Err(second_job(first, site)),
        Some(TakenRole::Launched { .. }) => Ok(Role::Launcher),
        None => match Calling::of_this_process()? {
            Some(calling) => {
                let (role, control) = match calling.follow(site, choices) {
                    Ok((member, hosting)) => {
                        let control = member.control.clone();
                        let role = match hosting {
                            Some(hosting) => Role::Host(member, hosting),
                            None => Role::Member(member),
                        };
                        (role, control)
                    }
                    Err(error) => {
                        *taken = Some(TakenRole::Failed { why: error.to_string() });
                        return Err(error);
                    }
                };
                let is_host = matches!(role, Role::Host(..));
                *taken = Some(TakenRole::Joined { first: site.into(), control, is_host });
                Ok(role)
            }
            None => {
                if method == StartMethod::Again {
                    *taken = Some(TakenRole::Launched { first: site.into() });
                }
                Ok(Role::Launcher)
            }
        },
    }
}

/// The reason why this process belongs to a job.
#[derive(Debug)]
enum Calling {
    /// Farside's launcher started it.
    Invitation(Invitation),
    /// Another launcher started it.
    Rendezvous(PlaceSource),
}

impl Calling {
    /// Returns `None` if no launcher started this process for a job.
    fn of_this_process() -> Result<Option<Self>> {
        let invitation = Invitation::from_environment(&own_environment, std::os::unix::process::parent_id())?;
        match invitation {
            Some(invitation) => Ok(Some(Self::Invitation(invitation))),
            None => Ok(PlaceSource::from_environment(&own_environment)?.map(Self::Rendezvous)),
        }
    }

    /// Joins the job at `site`. Called once in the life of the process.
    fn follow(self, site: &str, choices: Choices) -> Result<(Member, Option<Hosting>)> {
        match self {
            Self::Invitation(invitation) => Ok((invitation.accept(site, choices)?, None)),
            Self::Rendezvous(source) => {
                // Farside's launcher sets these variables for its children. They must be set before
                // anything starts a thread. Once there are threads, libfabric takes more memory,
                // and providers that are not safe without the variables say so.
                set_default_environment(&ofi::ENVIRONMENT);
                source.take(&choices, &own_environment)
            }
        }
    }
}

/// Returns whether this process belongs to a job that Farside's launcher, or another one such as
/// `mpirun`, started.
pub fn is_member() -> bool {
    !matches!(Calling::of_this_process(), Ok(None))
}

/// Returns whether another process reports the errors of this one. Farside's launcher does so for
/// all its processes. Without it, process 0 does so for the processes that have reached it.
///
/// A program that reports errors to its user asks this, so that not every process of a job reports
/// the same error.
pub fn is_reported() -> bool {
    match Calling::of_this_process() {
        Ok(Some(Calling::Invitation(_))) => true,
        Ok(Some(Calling::Rendezvous(_))) => match &*TAKEN_ROLE.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(TakenRole::Joined { control, is_host, .. }) => !is_host && control.is_heard(),
            _ => false,
        },
        Ok(None) | Err(_) => false,
    }
}

/// Describes the role of a child in the environment of its command.
pub fn write_environment(
    command: &mut Command,
    process: ProcessId,
    control: RawFd,
    site: Option<&str>,
    choices: &[(&'static str, String)],
) {
    // The launcher itself may be a child of another launcher.
    for name in settings::VARIABLES.iter().copied().chain([SITE]) {
        command.env_remove(name);
    }
    command.env(PROCESS, process.number().to_string());
    command.env(CONTROL, control.to_string());
    command.env(LAUNCHER, std::process::id().to_string());
    command.envs(site.map(|site| (SITE, site)));
    command.envs(choices.iter().map(|(name, value)| (name, value)));
}

fn second_job(first: &str, this: &str) -> Error {
    Error::SecondJob { first: first.into(), this: this.into() }
}

/// Reports an error to the launcher, and returns it.
fn reported(error: Error, control: &dyn Control) -> Error {
    control.send(ToCoordinator::failed_with(&error, None));
    error
}

/// The data that a launcher left in the environment of its child.
#[derive(Debug, PartialEq, Eq)]
struct Invitation {
    launcher: u32,
    control: RawFd,
}

impl Invitation {
    /// Returns `None` if no launcher is the parent of this process.
    fn from_environment(lookup: Lookup<'_>, parent: u32) -> Result<Option<Self>> {
        match variable(lookup, LAUNCHER)? {
            Some(launcher) if launcher == parent => {
                let missing = || Error::JobEnded { why: format!("{LAUNCHER} is set without {CONTROL}: unset it") };
                Ok(Some(Self { launcher, control: variable(lookup, CONTROL)?.ok_or_else(missing)? }))
            }
            // The environment was inherited: a process of a job, or a program that it started, is
            // the parent.
            _ => Ok(None),
        }
    }

    /// Joins the job at `site`. Called once in the life of the process.
    fn accept(self, site: &str, choices: Choices) -> Result<Member> {
        let control = Arc::new(SocketControl::new(self.link()?));
        self.read(&own_environment, site, choices, control.clone()).map_err(|error| reported(error, &*control))
    }

    fn link(&self) -> Result<MessageSocket> {
        let from_launcher = |copy| {
            let peer = MessageSocket::from_fd(copy).peer();
            peer.is_ok_and(|peer| peer.pid.is_some_and(|pid| pid.cast_unsigned() == self.launcher))
        };
        // SAFETY: a socket whose other end this process's parent made, under the number that the
        // parent gave, is the one that the launcher opened for this purpose before this program
        // began, so nothing in the program owns it. `role` reaches this line once: it holds the
        // lock of `TAKEN_ROLE`, where it records that it did.
        let descriptor = unsafe { take_inherited(self.control, from_launcher) };
        descriptor.map(MessageSocket::from_fd).ok_or_else(|| Error::JobEnded {
            why: format!(
                "descriptor {} is not the link with the launcher (process {}): the program must not close descriptors that \
                 it did not open",
                self.control, self.launcher
            ),
        })
    }

    fn read(&self, lookup: Lookup<'_>, site: &str, choices: Choices, control: Arc<dyn Control>) -> Result<Member> {
        match lookup(SITE) {
            Some(expected) if expected != site => {
                return Err(Error::WrongJob {
                    expected: expected.to_string_lossy().into_owned(),
                    reached: site.into(),
                    remedy: "give each job of the program arguments that lead straight to it, with `Job::entry`",
                });
            }
            _ => {}
        }
        let settings = Choices::from_environment(lookup)?.or(choices).resolve(lookup)?;
        match variable(lookup, PROCESS)? {
            Some(number) if number < settings.processes => {
                let process = ProcessId::new(number);
                let kill_plan = KillPlan::from_environment(lookup, process)?;
                Ok(Member { process, settings, control, transport: TransportChoice::ByRoute, kill_plan, build: 0 })
            }
            number => Err(Error::JobEnded {
                why: format!("{PROCESS} is {number:?} in a job of {} processes: unset it", settings.processes),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::ffi::OsString;
    use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd};
    use std::sync::mpsc;

    use super::*;
    use crate::control::LocalControl;

    type Environment = HashMap<&'static str, String>;

    /// Returns the environment that a launcher leaves for process 1 of 3.
    fn environment() -> Environment {
        let choices = Choices { processes: Some(3), threads: Some(2), ..Choices::default() }.to_environment();
        let mut command = Command::new("unused");
        write_environment(&mut command, ProcessId::new(1), 7, Some("here"), &choices);
        let names = [PROCESS, CONTROL, LAUNCHER, SITE].into_iter().chain(settings::VARIABLES.iter().copied());
        let mut left: HashMap<_, _> = command.get_envs().collect();
        let value = |value: &std::ffi::OsStr| value.to_str().unwrap().to_owned();
        let environment =
            names.filter_map(|name| Some((name, value(left.remove(name.as_ref() as &std::ffi::OsStr)??))));
        let environment: Environment = environment.collect();
        assert!(left.values().all(Option::is_none), "no variable is set that is not read: {left:?}");
        environment
    }

    fn lookup(environment: &Environment) -> impl Fn(&str) -> Option<OsString> {
        |name| environment.get(name).map(OsString::from)
    }

    fn invitation(environment: &Environment, parent: u32) -> Result<Option<Invitation>> {
        Invitation::from_environment(&lookup(environment), parent)
    }

    fn read(environment: &Environment, site: &str, choices: Choices) -> Result<Member> {
        let invitation = Invitation { launcher: 1, control: 7 };
        let control = Arc::new(LocalControl::new(|_| {}, || {}));
        invitation.read(&lookup(environment), site, choices, control)
    }

    #[test]
    fn only_children_of_the_launcher_are_invited() {
        let here = std::process::id();
        let invited = invitation(&environment(), here).unwrap();
        assert_eq!(invited, Some(Invitation { launcher: here, control: 7 }));
        assert_eq!(invitation(&environment(), here + 1).unwrap(), None);
        assert_eq!(invitation(&Environment::new(), here).unwrap(), None);
    }

    #[test]
    fn a_member_takes_what_the_launcher_says_before_what_the_program_says() {
        let choices = Choices { processes: Some(8), threads: Some(8), queue_cap_bytes: Some(99), ..Choices::default() };
        let member = read(&environment(), "here", choices).unwrap();
        assert_eq!(member.process, ProcessId::new(1));
        assert_eq!((member.settings.processes, member.settings.threads), (3, 2));
        assert_eq!(member.settings.queue_cap_bytes, 99);
    }

    #[test]
    fn another_job_than_the_one_meant_is_an_error() {
        let error = read(&environment(), "there", Choices::default()).unwrap_err();
        assert!(
            matches!(error, Error::WrongJob { expected, reached, .. } if (&*expected, &*reached) == ("here", "there"))
        );
        let mut any_site = environment();
        any_site.remove(SITE);
        read(&any_site, "there", Choices::default()).unwrap();
    }

    #[test]
    fn nonsense_is_an_error_that_names_it() {
        for (name, value) in [(PROCESS, "3"), (PROCESS, "-1"), (PROCESS, ""), (settings::VARIABLES[0], "many")] {
            let mut environment = environment();
            environment.insert(name, value.into());
            let error = read(&environment, "here", Choices::default()).unwrap_err().to_string();
            assert!(error.contains(name), "{error}");
        }
        let here = std::process::id();
        let mut environment = environment();
        environment.remove(CONTROL);
        assert!(invitation(&environment, here).unwrap_err().to_string().contains(CONTROL));
        environment.insert(LAUNCHER, "my shell".into());
        assert!(invitation(&environment, here).unwrap_err().to_string().contains(LAUNCHER));
    }

    #[test]
    fn only_a_socket_of_the_launcher_is_a_link() {
        let here = std::process::id();
        let (_near, far) = MessageSocket::pair().unwrap();
        let own = Invitation { launcher: here, control: OwnedFd::from(far).into_raw_fd() };
        own.link().unwrap();

        let (_near, far) = MessageSocket::pair().unwrap();
        let far = OwnedFd::from(far);
        let foreign = Invitation { launcher: here + 1, control: far.as_raw_fd() };
        foreign.link().unwrap_err();
        MessageSocket::from_fd(far).peer().expect("it is still open");

        let file = std::fs::File::open("/dev/null").unwrap();
        let no_socket = Invitation { launcher: here, control: file.as_raw_fd() };
        no_socket.link().unwrap_err();
        file.metadata().expect("it is still open");

        let closed = Invitation { launcher: here, control: 1 << 20 };
        closed.link().unwrap_err();
        let standard = Invitation { launcher: here, control: std::io::stdin().as_raw_fd() };
        standard.link().unwrap_err();
    }

    #[test]
    fn the_launcher_reports_the_failure() {
        let (said, hear) = mpsc::channel();
        let control = LocalControl::new(move |message| said.send(message).unwrap(), || {});
        let error = reported(second_job("a.rs:1:1", "b.rs:2:2"), &control);
        assert_eq!(hear.try_recv(), Ok(ToCoordinator::failed_with(&error, None)));
    }
}
