//! The parameters of the game and of the engine: names, values and lists.

use std::fmt::{self, Display, Write};
use std::str::FromStr;
use std::time::Duration;

use super::framing::quoted;
use super::table::SwapMode;
use crate::search::{MAX_ROLLOUTS, Params};

/// Parameters of `param_game`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct GameParameters {
    pub(super) allow_swap: bool,
    pub(super) swap_mode: SwapMode,
    /// True if the engine answers `swap` instead of `swap-pieces`, as the site Little Golem
    /// expects.
    pub(super) on_little_golem: bool,
    /// Time of each player for a game; `None` is no limit.
    pub(super) game_time: Option<Duration>,
}

/// Parameters of `param_farside`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct EngineParameters {
    /// Maximum time for one move.
    pub(super) max_time: Duration,
    /// Maximum number of rollouts for one move.
    pub(super) max_games: u64,
    pub(super) search: Params,
    pub(super) reuse_subtree: bool,
    pub(super) use_connections: bool,
    pub(super) use_livegfx: bool,
    pub(super) livegfx_interval: Duration,
    /// Win rate below which the engine resigns; with 0 it plays every game to its end.
    pub(super) resign_threshold: f64,
    /// Minimum number of rollouts before the engine resigns.
    pub(super) resign_games: u64,
    /// Number of workers that search; read-only.
    pub(super) workers: u32,
}

impl Default for GameParameters {
    fn default() -> Self {
        Self { allow_swap: false, swap_mode: SwapMode::Pieces, on_little_golem: false, game_time: None }
    }
}

impl EngineParameters {
    pub(super) fn new(workers: u32, seed: u64) -> Self {
        Self {
            max_time: Duration::from_secs(10),
            max_games: MAX_ROLLOUTS,
            search: Params { seed, ..Params::default() },
            reuse_subtree: true,
            use_connections: true,
            use_livegfx: false,
            livegfx_interval: Duration::from_millis(500),
            resign_threshold: 0.02,
            resign_games: 1000,
            workers,
        }
    }
}

/// A set of parameters.
pub(super) trait Parameters {
    /// Adds all parameters to a list.
    fn list(&self, list: &mut List);

    /// Sets one parameter.
    ///
    /// # Errors
    /// The reason, if the name is unknown or the value invalid. Nothing is changed then.
    fn set(&mut self, name: &str, value: &str) -> Result<(), String>;
}

/// A list of parameters in the form that front ends read: a type in brackets, a name, a value.
#[derive(Debug, Default)]
pub(super) struct List(String);

impl List {
    pub(super) fn of(parameters: &impl Parameters) -> String {
        let mut list = Self::default();
        parameters.list(&mut list);
        list.0
    }

    fn flag(&mut self, name: &str, value: bool) {
        self.line("bool", name, u8::from(value));
    }

    fn text(&mut self, name: &str, value: impl Display) {
        self.line("string", name, value);
    }

    fn choice(&mut self, names: &[&str], name: &str, value: impl Display) {
        self.line(&format!("list/{}", names.join("/")), name, value);
    }

    fn line(&mut self, kind: &str, name: &str, value: impl Display) {
        let _ = write!(self.0, "\n[{kind}] {name} {value}");
    }
}

const SWAP_MODES: [&str; 3] = ["pieces", "sides", "twogtp"];

impl Parameters for GameParameters {
    fn list(&self, list: &mut List) {
        list.flag("allow_swap", self.allow_swap);
        list.text("game_time", self.game_time.unwrap_or_default().as_secs_f64());
        list.flag("on_little_golem", self.on_little_golem);
        list.choice(&SWAP_MODES, "swap_mode", self.swap_mode);
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        match name {
            "allow_swap" => self.allow_swap = flag(name, value)?,
            "game_time" => self.game_time = seconds(name, value, 0.0).map(|time| (!time.is_zero()).then_some(time))?,
            "on_little_golem" => self.on_little_golem = flag(name, value)?,
            "swap_mode" => {
                self.swap_mode = one_of([SwapMode::Pieces, SwapMode::Sides, SwapMode::Twogtp], name, value)?;
            }
            _ => return Err(unknown(name, self)),
        }
        Ok(())
    }
}

impl Parameters for EngineParameters {
    fn list(&self, list: &mut List) {
        list.text("expand_after", self.search.expand_after);
        list.text("exploration", self.search.exploration);
        list.text("livegfx_interval", self.livegfx_interval.as_secs_f64());
        list.text("max_games", self.max_games);
        list.text("max_memory", self.search.memory_bytes);
        list.text("max_time", self.max_time.as_secs_f64());
        list.text("num_threads", self.workers);
        list.text("resign_games", self.resign_games);
        list.text("resign_threshold", self.resign_threshold);
        list.flag("reuse_subtree", self.reuse_subtree);
        list.text("seed", self.search.seed);
        list.text("simulations", self.search.simulations);
        list.flag("use_connections", self.use_connections);
        list.flag("use_livegfx", self.use_livegfx);
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        let search = &mut self.search;
        match name {
            "expand_after" => search.expand_after = number(name, value, 0, u32::MAX)?,
            "exploration" => search.exploration = number(name, value, 0.0, 1000.0)?,
            "livegfx_interval" => self.livegfx_interval = seconds(name, value, 0.0)?,
            "max_games" => self.max_games = number(name, value, 1, MAX_ROLLOUTS)?,
            "max_memory" => search.memory_bytes = number(name, value, MEMORY_BYTES_MIN, usize::MAX)?,
            "max_time" => self.max_time = seconds(name, value, 0.001)?,
            "num_threads" => {
                return Err("num_threads cannot be changed: restart with `farside hex htp -n P -t T`".into());
            }
            "resign_games" => self.resign_games = number(name, value, 1, u64::MAX)?,
            "resign_threshold" => self.resign_threshold = number(name, value, 0.0, 1.0)?,
            "reuse_subtree" => self.reuse_subtree = flag(name, value)?,
            "seed" => search.seed = number(name, value, 0, u64::MAX)?,
            "simulations" => search.simulations = number(name, value, 1, Params::MAX_SIMULATIONS)?,
            "use_connections" => self.use_connections = flag(name, value)?,
            "use_livegfx" => self.use_livegfx = flag(name, value)?,
            _ => return Err(unknown(name, self)),
        }
        Ok(())
    }
}

/// Minimum memory for a search; enough to begin one on every board.
const MEMORY_BYTES_MIN: usize = 1 << 20;
/// Maximum of a time in seconds: about ten years.
const SECONDS_MAX: f64 = 3e8;

fn flag(name: &str, value: &str) -> Result<bool, String> {
    match value {
        "0" | "false" => Ok(false),
        "1" | "true" => Ok(true),
        _ => Err(format!("invalid value {} for {name}: expected 0 or 1", quoted(value))),
    }
}

/// Reads a number from `min` to `max`. NaN is outside every range.
fn number<T: FromStr + PartialOrd + Display>(name: &str, value: &str, min: T, max: T) -> Result<T, String> {
    let number = value.parse().ok().filter(|number| (&min..=&max).contains(&number));
    number.ok_or_else(|| format!("invalid value {} for {name}: expected a number from {min} to {max}", quoted(value)))
}

/// Reads a time in seconds that is at least `min`.
pub(super) fn seconds(name: &str, value: &str, min: f64) -> Result<Duration, String> {
    number(name, value, min, SECONDS_MAX).map(Duration::from_secs_f64)
}

fn one_of<T: Display, const N: usize>(all: [T; N], name: &str, value: &str) -> Result<T, String> {
    let names = all.iter().map(T::to_string).collect::<Vec<_>>().join(" or ");
    let found = all.into_iter().find(|one| one.to_string() == value);
    found.ok_or_else(|| format!("invalid value {} for {name}: expected {names}", quoted(value)))
}

fn unknown(name: &str, parameters: &impl Parameters) -> String {
    let list = List::of(parameters);
    let names: Vec<_> = list.lines().filter_map(|line| line.split(' ').nth(1)).collect();
    format!("unknown parameter {}: expected one of {}", quoted(name), names.join(", "))
}

impl Display for SwapMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(SWAP_MODES[*self as usize])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks that every parameter accepts its own value, and lists the value it was set to.
    fn assert_round_trip(mut parameters: impl Parameters, read_only: &[&str]) {
        let list = List::of(&parameters);
        for line in list.lines().skip(1) {
            let [kind, name, value] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
            assert!(kind.starts_with('[') && kind.ends_with(']'), "{line}");
            assert_eq!(parameters.set(name, value).is_err(), read_only.contains(&name), "{line}");
            let other = match (kind, value) {
                ("[bool]", "0") => "1",
                ("[bool]", _) => "0",
                ("[string]", _) if name == "max_memory" => "2097152",
                ("[string]", _) => "1",
                (choices, _) => choices.trim_end_matches(']').rsplit('/').next().unwrap(),
            };
            if !read_only.contains(&name) {
                parameters.set(name, other).unwrap();
                assert!(List::of(&parameters).contains(&format!("{kind} {name} {other}")), "{line}");
            }
            let before = List::of(&parameters);
            for wrong in ["x", "", "-1", "nan", "inf", "1e999"] {
                let why = parameters.set(name, wrong).unwrap_err();
                assert!(why.contains(name), "{why}");
            }
            assert_eq!(List::of(&parameters), before);
        }
    }

    #[test]
    fn parameters_are_listed_as_they_were_set() {
        assert_round_trip(GameParameters::default(), &[]);
        assert_round_trip(EngineParameters::new(4, 7), &["num_threads"]);
    }

    #[test]
    fn an_unknown_parameter_is_answered_with_the_known_ones() {
        let why = GameParameters::default().set("komi", "6.5").unwrap_err();
        assert!(why.contains("komi") && why.contains("allow_swap, game_time, on_little_golem, swap_mode"), "{why}");
    }
}
