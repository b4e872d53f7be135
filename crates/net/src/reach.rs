//! Calls to a machine at several addresses. Which of them works from here is unknown before the
//! call. Some addresses are of networks that end at that machine. Here the same address may be
//! another machine's, or this one's own.

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use std::time::Duration;

/// How long an address is called before the next one is called, too.
const ALONE: Duration = Duration::from_millis(100);

/// The result of `call` at the first of `addresses` where it succeeds. Each is called once those
/// before it have failed or had some time. If all fail, the result is the last error; without
/// addresses it is `None`.
pub async fn first<'a, T, E, C: Future<Output = Result<T, E>>>(
    addresses: &'a [String],
    call: impl Fn(&'a String) -> C,
) -> Option<Result<T, E>> {
    let (mut left, mut calling, mut last) = (addresses.iter(), FuturesUnordered::new(), None);
    loop {
        calling.extend(left.next().map(&call));
        let are_left = !left.as_slice().is_empty();
        tokio::select! {
            biased;
            called = calling.next() => match called {
                Some(Ok(found)) => return Some(Ok(found)),
                Some(Err(error)) => last = Some(Err(error)),
                None => return last,
            },
            () = tokio::time::sleep(ALONE), if are_left => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::{Instant, sleep};

    /// The result of calling addresses that answer or fail after so many ms, and how many ms it
    /// takes.
    async fn called(addresses: &[(u64, bool)]) -> (Option<Result<usize, usize>>, u64) {
        let names: Vec<String> = (0..addresses.len()).map(|at| at.to_string()).collect();
        let began = Instant::now();
        let call = |name: &String| {
            let at: usize = name.parse().unwrap();
            let (ms, is_there) = addresses[at];
            async move {
                sleep(Duration::from_millis(ms)).await;
                if is_there { Ok(at) } else { Err(at) }
            }
        };
        let came = first(&names, call).await;
        (came, began.elapsed().as_millis() as u64)
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_that_is_there_is_found_whatever_the_others_do() {
        assert_eq!(called(&[]).await, (None, 0));
        assert_eq!(called(&[(7, true), (1, true)]).await, (Some(Ok(0)), 7));
        assert_eq!(called(&[(3, false), (7, true)]).await, (Some(Ok(1)), 10), "the next at once");
        assert_eq!(called(&[(60_000, true), (7, true)]).await, (Some(Ok(1)), 107));
        assert_eq!(
            called(&[(60_000, true), (60_000, true), (5, false), (7, true)]).await,
            (Some(Ok(3)), 212)
        );
        assert_eq!(called(&[(150, true), (60_000, true)]).await, (Some(Ok(0)), 150), "it may go on");
        assert_eq!(called(&[(150, false), (4, false)]).await, (Some(Err(0)), 150), "each is waited for");
        assert_eq!(called(&[(150, false), (200, true), (9, false)]).await, (Some(Ok(1)), 300));
    }
}
