//! Repeats an answer: until a person interrupts it (`--watch`), or until nothing is wrong (`--wait`).
//!
//! Knows neither the question nor the form of an answer.

use std::io::IsTerminal as _;
use std::time::Duration;

use anyhow::{Result, anyhow};
use tokio::time::Instant;

use super::super::program::program;
use super::super::screen::{self, Reader};
use super::{Format, Verdict};

/// The shortest pause between two looks.
const PAUSE: Duration = Duration::from_secs(2);

/// A look lists the whole cluster, so the pause is at least this many times as long as the look.
const PAUSE_PER_LOOK: u32 = 4;

/// The place of the next answer of `--watch`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Screen {
    /// In place of the last one, also if it is the same: ages in it change.
    Redraw,
    /// Below the last one, if it differs.
    Append,
}

impl Screen {
    /// Of standard output in this form.
    pub(super) fn of(form: Format) -> Self {
        match form {
            Format::Table | Format::Wide if std::io::stdout().is_terminal() => Self::Redraw,
            Format::Table | Format::Wide | Format::Json | Format::Yaml => Self::Append,
        }
    }
}

/// Looks until it is interrupted or its reader has seen enough, and shows each answer. If the first look fails, the
/// command fails; later failures are printed on standard error.
pub(super) async fn watch<A: PartialEq>(
    screen: Screen,
    look: impl AsyncFn() -> Result<A>,
    show: impl Fn(&A) -> Result<Reader>,
) -> Result<A> {
    let interrupted = tokio::signal::ctrl_c();
    tokio::pin!(interrupted);
    let mut last: Option<A> = None;
    loop {
        let began = Instant::now();
        let looked = tokio::select! {
            biased;
            _ = &mut interrupted => break,
            looked = look() => looked,
        };
        match looked {
            Ok(answer) => {
                let is_news = screen == Screen::Redraw || last.as_ref() != Some(&answer);
                let reader = if is_news { show(&answer)? } else { Reader::Open };
                last = Some(answer);
                if reader == Reader::Closed {
                    break;
                }
            }
            Err(error) if last.is_none() => return Err(error),
            Err(error) => screen::note(format_args!("{}: {error:#}", program())),
        }
        tokio::select! {
            biased;
            _ = &mut interrupted => break,
            () = tokio::time::sleep(pause_after(began)) => {}
        }
    }
    last.ok_or_else(|| anyhow!("interrupted before the first answer"))
}

/// Looks until nothing is wrong or the time is over, and returns the last answer. Problems are printed on standard
/// error when they change. The command fails if the first look or the last one fails.
pub(super) async fn wait<A>(
    limit: Duration,
    look: impl AsyncFn() -> Result<A>,
    verdict: impl Fn(&A) -> Verdict,
    reported: impl Fn(&A) -> String,
) -> Result<A> {
    let began = Instant::now();
    // A limit that no clock can hold is no limit.
    let deadline = began.checked_add(limit).unwrap_or(began + Duration::from_secs(365 * 24 * 3600));
    let mut last: Option<Result<A>> = None;
    let mut said = String::new();
    loop {
        let began = Instant::now();
        match tokio::time::timeout_at(deadline, look()).await {
            Err(_) => break,
            Ok(Ok(answer)) if verdict(&answer) == Verdict::Fine => return Ok(answer),
            Ok(Ok(answer)) => {
                let wrong = reported(&answer);
                if wrong != said {
                    screen::note(format_args!("{}: waiting: {wrong}", program()));
                    said = wrong;
                }
                last = Some(Ok(answer));
            }
            Ok(Err(error)) if last.is_none() => return Err(error),
            Ok(Err(error)) => {
                screen::note(format_args!("{}: {error:#}", program()));
                last = Some(Err(error));
            }
        }
        tokio::time::sleep_until(deadline.min(Instant::now() + pause_after(began))).await;
        // A look that is ready at once would beat its time-out.
        if Instant::now() >= deadline {
            break;
        }
    }
    last.unwrap_or_else(|| Err(anyhow!("no answer within {}", humantime::format_duration(limit))))
}

fn pause_after(began: Instant) -> Duration {
    PAUSE.max(began.elapsed() * PAUSE_PER_LOOK)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use anyhow::bail;

    use super::*;

    /// Waits for 10 s while the looks bring these answers: a number of problems, or a failure. The last one is
    /// repeated.
    async fn check(answers: &[Option<usize>], expected: Option<usize>, n_looks: usize) {
        let looked = Cell::new(0);
        let look = async || {
            let index = looked.replace(looked.get() + 1);
            match answers[index.min(answers.len() - 1)] {
                Some(n_problems) => Ok(n_problems),
                None => bail!("away"),
            }
        };
        let verdict = |n_problems: &usize| if *n_problems == 0 { Verdict::Fine } else { Verdict::Found };
        let waited = wait(Duration::from_secs(10), look, verdict, ToString::to_string).await;
        assert_eq!((waited.ok(), looked.get()), (expected, n_looks), "{answers:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn it_waits_until_nothing_is_wrong_or_the_time_is_over() {
        check(&[Some(0)], Some(0), 1).await;
        check(&[Some(2), Some(1), Some(0), Some(7)], Some(0), 3).await;
        check(&[Some(2), Some(1)], Some(1), 5).await;
    }

    #[tokio::test(start_paused = true)]
    async fn only_the_first_failure_and_the_last_one_count() {
        check(&[None, Some(0)], None, 1).await;
        check(&[Some(1), None, Some(0)], Some(0), 3).await;
        check(&[Some(1), None], None, 5).await;
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_does_not_come_is_no_answer() {
        let look = async || std::future::pending::<Result<usize>>().await;
        let waited = wait(Duration::from_secs(10), look, |_| Verdict::Fine, ToString::to_string).await;
        assert_eq!(waited.unwrap_err().to_string(), "no answer within 10s");
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_is_appended_only_if_it_differs() {
        for (screen, expected) in [(Screen::Append, vec![1, 2]), (Screen::Redraw, vec![1, 1, 2])] {
            let (looked, shown) = (Cell::new(0), Cell::new(Vec::new()));
            let look = async || {
                let index = looked.replace(looked.get() + 1);
                [1, 1, 2].get(index).copied().ok_or_else(|| anyhow!("the end of the test"))
            };
            let show = |answer: &i32| {
                let mut all = shown.take();
                all.push(*answer);
                let is_last = *answer == 2;
                shown.set(all);
                Ok(if is_last { Reader::Closed } else { Reader::Open })
            };
            assert_eq!(watch(screen, look, show).await.unwrap(), 2);
            assert_eq!(shown.take(), expected, "{screen:?}");
        }
    }
}
