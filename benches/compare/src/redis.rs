//! Redis as a peer: a Bloom filter as many write it by hand, k GETBITs an item, pipelined.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use crate::http::free_address;
use crate::process::{ALL_CORES, Process, on_cores};
use crate::stage::Stage;

/// A million items at 1 %.
const BIT_COUNT: u64 = 9_585_059;
const HASH_COUNT: u64 = 7;
/// Items of one pipeline, as of one check-batch.
const PIPELINE_ITEMS: u64 = 1_000;
/// Different pipelines of each connection.
const PIPELINES: u64 = 16;

/// A server that keeps nothing on disk, with a bitmap of which half the bits are set.
pub(crate) struct Redis {
    _process: Process,
    address: SocketAddr,
}

impl Redis {
    pub(crate) fn start(stage: &Stage) -> anyhow::Result<Self> {
        let address = free_address()?;
        let mut command = on_cores(ALL_CORES, "redis-server");
        command
            .args(["--bind", "127.0.0.1", "--port", &address.port().to_string()])
            .args(["--save", "", "--appendonly", "no", "--dir"])
            .arg(&stage.folder);
        let process = Process::start(&mut command)?;
        let begun = Instant::now();
        while TcpStream::connect(address).is_err() {
            anyhow::ensure!(
                begun.elapsed() < Duration::from_secs(20),
                "redis did not start"
            );
            thread::sleep(Duration::from_millis(5));
        }
        let redis = Self {
            _process: process,
            address,
        };
        redis.set_half_of_the_bits()?;
        Ok(redis)
    }

    fn set_half_of_the_bits(&self) -> anyhow::Result<()> {
        let bytes = BIT_COUNT.div_ceil(8);
        let mut random = Random(1);
        let bitmap: Vec<u8> = (0..bytes).map(|_| random.next().to_le_bytes()[7]).collect();
        let mut stream = TcpStream::connect(self.address)?;
        write!(stream, "*3\r\n$3\r\nSET\r\n$1\r\nf\r\n${bytes}\r\n")?;
        stream.write_all(&bitmap)?;
        stream.write_all(b"\r\n")?;
        let mut answer = [0; 5];
        stream.read_exact(&mut answer)?;
        anyhow::ensure!(answer == *b"+OK\r\n", "redis did not take the bitmap");
        Ok(())
    }

    /// Items a second over so many connections, for so long. The load's core is the caller's, and
    /// costs next to nothing: what is sent was written before, and of the answers only the length
    /// counts.
    pub(crate) fn items_a_second(
        &self,
        connections: u64,
        duration: Duration,
    ) -> anyhow::Result<f64> {
        let begun = Instant::now();
        let asking: Vec<_> = (0..connections)
            .map(|seed| {
                let address = self.address;
                thread::spawn(move || ask(address, seed, begun, duration))
            })
            .collect();
        let mut items = 0;
        for thread in asking {
            items += thread
                .join()
                .map_err(|_| anyhow::anyhow!("a connection panicked"))??;
        }
        Ok(items as f64 / begun.elapsed().as_secs_f64())
    }
}

fn ask(address: SocketAddr, seed: u64, begun: Instant, duration: Duration) -> anyhow::Result<u64> {
    let mut random = Random(seed + 2);
    let pipelines: Vec<Vec<u8>> = (0..PIPELINES).map(|_| pipeline(&mut random)).collect();
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    // `:0` or `:1` and the end of the line.
    let mut answers = vec![0; (PIPELINE_ITEMS * HASH_COUNT) as usize * 4];
    let mut items = 0;
    for pipeline in pipelines.iter().cycle() {
        if begun.elapsed() >= duration {
            break;
        }
        // Redis takes in a whole pipeline however much of its answer is unread.
        stream.write_all(pipeline)?;
        stream.read_exact(&mut answers)?;
        let whole = answers
            .chunks(4)
            .all(|answer| answer[0] == b':' && answer[2..] == *b"\r\n");
        anyhow::ensure!(whole, "redis answered otherwise");
        items += PIPELINE_ITEMS;
    }
    Ok(items)
}

fn pipeline(random: &mut Random) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..PIPELINE_ITEMS * HASH_COUNT {
        let position = (random.next() % BIT_COUNT).to_string();
        bytes.extend(
            format!(
                "*3\r\n$6\r\nGETBIT\r\n$1\r\nf\r\n${}\r\n{position}\r\n",
                position.len()
            )
            .bytes(),
        );
    }
    bytes
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }
}
