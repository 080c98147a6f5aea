//! Every order in which futures can take their steps.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

/// Runs a future whose steps nothing comes between.
pub(super) fn at_one_go<T>(future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
    }
}

/// A future that runs beside others.
pub(super) type Task<'t> = Pin<Box<dyn Future<Output = ()> + 't>>;

/// Whether a task can go on.
struct Ready(AtomicBool);

impl Wake for Ready {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The schedules, in order: at each step, which of the tasks that can go on does.
#[derive(Default)]
pub(super) struct Schedules {
    /// The choice of each step, and how many there were.
    choices: Vec<(usize, usize)>,
    step: usize,
}

impl Schedules {
    fn choose(&mut self, among: usize) -> usize {
        if self.step == self.choices.len() {
            self.choices.push((0, among));
        }
        let (chosen, were) = self.choices[self.step];
        assert_eq!(were, among, "the same schedule must lead to the same steps");
        self.step += 1;
        chosen
    }

    /// Goes on to the next schedule; false after the last one.
    fn advance(&mut self) -> bool {
        self.step = 0;
        while let Some((chosen, among)) = self.choices.pop() {
            if chosen + 1 < among {
                self.choices.push((chosen + 1, among));
                return true;
            }
        }
        false
    }
}

/// Runs tasks until the first `ending` of them have ended, and looks at `invariant` after each step.
pub(super) fn run(
    mut tasks: Vec<Task<'_>>,
    ending: usize,
    schedules: &mut Schedules,
    invariant: impl Fn(),
) {
    let ready: Vec<_> = tasks
        .iter()
        .map(|_| Arc::new(Ready(AtomicBool::new(true))))
        .collect();
    let mut ended = vec![false; tasks.len()];
    while !ended[..ending].iter().all(|has_ended| *has_ended) {
        let able: Vec<_> = (0..tasks.len())
            .filter(|task| !ended[*task] && ready[*task].0.load(Ordering::Relaxed))
            .collect();
        assert!(!able.is_empty(), "nobody can go on");
        let task = able[schedules.choose(able.len())];
        ready[task].0.store(false, Ordering::Relaxed);
        let waker = Waker::from(Arc::clone(&ready[task]));
        let polled = tasks[task].as_mut().poll(&mut Context::from_waker(&waker));
        ended[task] = polled.is_ready();
        invariant();
    }
}

/// Tries every schedule, and gives how many there are.
pub(super) fn in_every_interleaving(mut try_one: impl FnMut(&mut Schedules)) -> u64 {
    // The writer sets time limits, which need a clock; no schedule takes as long.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    let _entered = runtime.enter();
    let mut schedules = Schedules::default();
    let mut tried = 0;
    loop {
        try_one(&mut schedules);
        tried += 1;
        if !schedules.advance() {
            return tried;
        }
    }
}
