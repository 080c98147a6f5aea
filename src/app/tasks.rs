//! The long-lived tasks of the process: started, watched, and stopped one by one.
//!
//! Invariant: a task that ends before it was told to is noticed, and is an error.

use std::time::Duration;

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::AppError;

/// The long-lived tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Task {
    Server,
    Writer,
    Lifecycle,
    Snapshots,
    MetricsUpkeep,
}

impl Task {
    fn name(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Writer => "writer",
            Self::Lifecycle => "lifecycle",
            Self::Snapshots => "saving of snapshots",
            Self::MetricsUpkeep => "upkeep of the metrics",
        }
    }
}

/// The way to stop a task.
pub(super) struct Stop {
    task: Task,
    token: CancellationToken,
}

#[derive(Default)]
pub(super) struct Tasks {
    running: JoinSet<(Task, Result<(), AppError>)>,
}

impl Tasks {
    pub(super) fn start<F, R>(&mut self, task: Task, run: F) -> Stop
    where
        F: FnOnce(CancellationToken) -> R,
        R: Future<Output = Result<(), AppError>> + Send + 'static,
    {
        let token = CancellationToken::new();
        let running = run(token.clone());
        self.running.spawn(async move { (task, running.await) });
        Stop { task, token }
    }

    /// Waits for the first task that ends, which none should, and says why it did.
    pub(super) async fn ended_early(&mut self) -> AppError {
        match self.running.join_next().await {
            Some(Ok((_, Err(error)))) => error,
            Some(Ok((task, Ok(())))) => AppError::TaskEnded(task.name()),
            Some(Err(error)) => AppError::TaskDied(error),
            None => AppError::TaskEnded("process"),
        }
    }

    /// Stops a task and waits for its end, but no longer than `patience`.
    pub(super) async fn stop(&mut self, stop: Stop, patience: Duration) -> Result<(), AppError> {
        stop.token.cancel();
        let ended = tokio::time::timeout(patience, self.running.join_next()).await;
        match ended.map_err(|_| AppError::TaskHangs(stop.task.name()))? {
            Some(Ok((task, ended))) if task == stop.task => ended,
            Some(Ok((task, ended))) => ended.and(Err(AppError::TaskEnded(task.name()))),
            Some(Err(error)) => Err(AppError::TaskDied(error)),
            None => Ok(()),
        }
    }
}
