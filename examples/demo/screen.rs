//! The output for a person: plain lines, or on a terminal a picture that is drawn anew with every change.
//!
//! Nothing here decides about scenes. The demo does not stop because its output has lost its reader.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io::{IsTerminal as _, Write as _, stdout};
use std::time::{Duration, Instant};

use crate::scene::Count;
use crate::stage::joined;
use crate::state::State;
use crate::table;

/// How often a plain line repeats the counts while they change.
const REPEAT: Duration = Duration::from_secs(1);

/// Lines that stay on top of the picture, where there is room for as many; older ones scroll out of it.
const KEPT: usize = 8;

/// Where sentences are folded, so that the eye finds the next line.
const WIDTH: usize = 100;

/// The minimum size of a terminal, which is assumed of one that does not report its size.
const LEAST: (usize, usize) = (80, 24);

/// The sequences that switch to the other screen of a terminal, where the picture is, and back.
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";

/// The audience of the demo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// As fast as possible, in lines that a log keeps.
    Machine,
    /// With pauses, and drawn if there is a terminal.
    Person,
}

/// One moment of a scene.
pub(crate) struct View<'a> {
    pub(crate) counts: &'a [Count],
    pub(crate) state: &'a State,
    /// The changes that the objects show.
    pub(crate) news: &'a [String],
    /// The events of the controller.
    pub(crate) events: &'a [String],
    /// Whether the scene is over.
    pub(crate) reached: bool,
}

/// The output.
pub(crate) struct Screen {
    began: Instant,
    pace: Pace,
    /// The texts so far, of some lines each, while the picture is shown.
    picture: Option<VecDeque<String>>,
    scene_began: Instant,
    last: Option<(Instant, String)>,
}

impl Screen {
    pub(crate) fn new(pace: Pace) -> Self {
        let began = Instant::now();
        let drawn = pace == Pace::Person && stdout().is_terminal();
        if drawn {
            write(ENTER);
        }
        Self { began, pace, picture: drawn.then(VecDeque::new), scene_began: began, last: None }
    }

    /// A line that stays, with the time.
    pub(crate) fn say(&mut self, text: &str) {
        let stamp = format!("{:>5.1}s  ", self.began.elapsed().as_secs_f64());
        let (columns, _) = self.size();
        let width = WIDTH.min(columns.saturating_sub(stamp.len()));
        let folded: Vec<_> = text.lines().flat_map(|line| fold(line, width)).collect();
        let indented = folded.join(&format!("\n{:1$}", "", stamp.len()));
        self.print(&format!("{stamp}{indented}"));
    }

    /// Lines that stay, as they are.
    pub(crate) fn print(&mut self, text: &str) {
        match &mut self.picture {
            None => write(&format!("{text}\n")),
            Some(kept) => {
                kept.push_back(text.to_owned());
                while kept.len() > 1 && kept.iter().map(|text| text.lines().count()).sum::<usize>() > KEPT {
                    kept.pop_front();
                }
                self.draw("", &[]);
            }
        }
    }

    /// Starts a scene.
    pub(crate) fn open(&mut self, title: &str) {
        self.scene_began = Instant::now();
        self.last = None;
        self.say(title);
    }

    /// Shows how far the scene is.
    pub(crate) fn show(&mut self, view: &View<'_>) {
        if self.picture.is_some() {
            self.refresh(view);
        }
        let line = joined(view.counts);
        if view.reached {
            self.print(&format!("        {line}: done in {:.1}s", self.scene_began.elapsed().as_secs_f64()));
            if self.picture.is_none() && self.pace == Pace::Person && !view.state.pools.is_empty() {
                self.print(&table::pools(view.state));
            }
            return;
        }
        let due = self.last.as_ref().is_none_or(|(at, shown)| at.elapsed() >= REPEAT && *shown != line);
        if self.picture.is_none() && due {
            self.print(&format!("        {line}"));
            self.last = Some((Instant::now(), line));
        }
    }

    /// Draws the picture anew, where there is one.
    pub(crate) fn refresh(&mut self, view: &View<'_>) {
        if self.picture.is_none() {
            return;
        }
        let mut moment = String::new();
        let _ = writeln!(moment, "        {}\n\n{}\n", joined(view.counts), table::pools(view.state));
        let _ = writeln!(
            moment,
            "{} nodes, {} served; {} blocks held, {} cooling; {} addresses in use\n",
            view.state.nodes.len(),
            view.state.n_served(),
            view.state.n_claims("Held"),
            view.state.n_claims("Cooling"),
            view.state.n_used()
        );
        self.draw(&moment, &[("Blocks and nodes", view.news), ("Events", view.events)]);
    }

    /// Closes the picture; later lines stay on the terminal.
    pub(crate) fn leave(&mut self) {
        if let Some(kept) = self.picture.take() {
            write(LEAVE);
            for line in kept {
                self.print(&line);
            }
        }
    }

    /// The last text and `moment` are shown in full. The lists show their latest lines as far as there is room, and
    /// earlier texts get the rest of the room.
    fn draw(&self, moment: &str, lists: &[(&str, &[String])]) {
        let Some(kept) = &self.picture else { return };
        let (width, height) = self.size();
        // A last line that scrolls would move the lines above it.
        let height = height.saturating_sub(1);
        let latest = kept.back().map_or(0, |text| text.lines().count());
        let room = height.saturating_sub(latest + moment.lines().count() + lists.len());
        let mut below: Vec<String> = moment.lines().map(str::to_owned).collect();
        for (title, lines) in lists {
            below.push(format!("{title}:"));
            let shown = &lines[lines.len().saturating_sub(room / lists.len())..];
            below.extend(shown.iter().map(|line| format!("  {line}")));
        }
        let mut left = height.saturating_sub(below.len());
        let fits = |text: &&String| {
            let n_lines = text.lines().count();
            let fits = n_lines <= left;
            left = left.saturating_sub(n_lines);
            fits
        };
        let mut above: Vec<&String> = kept.iter().rev().take_while(fits).collect();
        above.reverse();

        let mut frame = String::from("\x1b[H");
        let lines = above.into_iter().flat_map(|text| text.lines()).chain(below.iter().map(String::as_str));
        for line in lines.take(height) {
            // A line that wraps would move the lines above it too.
            let _ = writeln!(frame, "{}\x1b[K", line.chars().take(width).collect::<String>());
        }
        frame.push_str("\x1b[J");
        write(&frame);
    }

    /// Columns and lines, of the terminal where the picture is shown.
    fn size(&self) -> (usize, usize) {
        let terminal = self.picture.as_ref().map(|_| terminal_size::terminal_size());
        match terminal {
            Some(Some((width, height))) => (width.0.into(), height.0.into()),
            Some(None) => LEAST,
            None => (usize::MAX, usize::MAX),
        }
    }
}

impl Drop for Screen {
    /// A panic must not leave the terminal without a cursor.
    fn drop(&mut self) {
        self.leave();
    }
}

/// The words in lines of at most `width` characters; a longer word has a line of its own.
fn fold(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().filter(|line| line.is_empty() || line.len() + 1 + word.len() <= width);
        match line {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) => line.extend([" ", word]),
            None => lines.push(word.to_owned()),
        }
    }
    lines
}

fn write(text: &str) {
    let mut out = stdout().lock();
    // The reader may be gone; the demo still stops everything that it has started.
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}
