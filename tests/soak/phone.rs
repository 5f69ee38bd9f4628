//! The phones: each asks one turn after another on its connection and knows for each what has to come of it.
use super::common::{CEILING, Request, Response, TOKEN, assistant, image, jpeg_uri, png_uri, secret, text, turn, user};
use super::house::{House, NARROW, model_of};
use super::kinds::{Asked, PhoneFault, Refused, ServerFault, server_faults};
use super::mark::{GOOD, Mark, Random};
use super::speech::DIALECTS;
use super::tables::Expected;
use super::upstream::{WITH_A_PICTURE, Watched};
use memchr::memmem;
use std::io;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// A `GET` without anything.
pub fn get(address: SocketAddr, target: &str) -> Request {
    Request::new(address, "GET", target)
}

/// A connection to Weir.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Connection {
    /// Connects.
    pub async fn to(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: Vec::new() })
    }

    async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes).await
    }

    /// Sends a request and reads its answer.
    pub async fn ask(&mut self, bytes: &[u8]) -> io::Result<Response> {
        self.send(bytes).await?;
        self.read().await
    }

    async fn fill(&mut self) -> io::Result<()> {
        if self.stream.read_buf(&mut self.buffer).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(())
    }

    async fn read_head(&mut self) -> io::Result<Response> {
        let end = loop {
            if let Some(end) = memmem::find(&self.buffer, b"\r\n\r\n") {
                break end;
            }
            self.fill().await?;
        };
        let head: Vec<u8> = self.buffer.drain(..end + 4).collect();
        let head = String::from_utf8(head).map_err(io::Error::other)?;
        let (first, lines) = head.trim_end().split_once("\r\n").unwrap_or((head.trim_end(), ""));
        let mut first = first.splitn(3, ' ');
        let version = first.next().unwrap_or_default().to_owned();
        let status = first.next().and_then(|status| status.parse().ok());
        let headers = lines.split("\r\n").filter_map(|line| line.split_once(':'));
        Ok(Response {
            version,
            status: status.ok_or_else(|| io::Error::other("not a status line"))?,
            headers: headers.map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned())).collect(),
            body: Vec::new(),
            informational: Vec::new(),
        })
    }

    async fn read(&mut self) -> io::Result<Response> {
        let mut answer = self.read_head().await?;
        let length = answer.header("content-length").and_then(|length| length.parse().ok());
        let length: usize = length.ok_or_else(|| io::Error::other("an answer without a length"))?;
        while self.buffer.len() < length {
            self.fill().await?;
        }
        answer.body = self.buffer.drain(..length).collect();
        Ok(answer)
    }

    /// Waits until the other side ends the connection.
    async fn ends(mut self) {
        while self.fill().await.is_ok() {
            self.buffer.clear();
        }
    }

    /// Goes away: cut off, or ended in order.
    fn leave(self, reset: bool) {
        if reset {
            self.stream.set_zero_linger().unwrap();
        }
    }
}

/// What was not as it has to be.
#[derive(Debug)]
pub enum Trouble {
    /// A reply to one turn with something of another.
    Mixed(String),
    /// Anything else.
    Wrong(String),
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        Self::Wrong(format!("the connection: {error}"))
    }
}

type Outcome = Result<(), Trouble>;

fn wrong(what: impl Into<String>) -> Outcome {
    Err(Trouble::Wrong(what.into()))
}

/// One phone.
#[derive(Debug)]
pub struct Phone {
    house: Arc<House>,
    number: u64,
    /// Whether it waits for answers that only come at the deadline, instead of hanging up.
    patient: bool,
    random: Random,
    turns: u64,
    connection: Option<Connection>,
}

impl Phone {
    /// A phone with random numbers of its own.
    pub fn new(house: Arc<House>, number: u64, patient: bool) -> Self {
        let random = Random::new(house.seed ^ number << 32);
        Self { house, number, patient, random, turns: 0, connection: None }
    }

    /// Asks one turn after another for as long as that goes on.
    pub async fn run(mut self) {
        let house = Arc::clone(&self.house);
        while house.goes_on() {
            // Held during a turn, so that everybody can be made to pause between two.
            let _busy = house.pause.read().await;
            let (server, phone) = (server_faults(), &house.phone_faults);
            let drawn = self.random.below(server.len() + phone.len());
            let (name, outcome) = if !self.random.once_in(5) {
                ("none".to_owned(), self.guarded(async |phone| phone.good().await).await)
            } else if let Some(fault) = server.get(drawn) {
                let leaves = fault.waits && !self.patient;
                let name = format!("{} {:?}{}", fault.row.name, fault.row.form, if leaves { ", left" } else { "" });
                (name, self.guarded(async |phone| phone.meet(drawn, fault, leaves).await).await)
            } else {
                let fault = phone[drawn - server.len()];
                (fault.name(), self.guarded(async |phone| phone.misbehave(fault).await).await)
            };
            if let Err(trouble) = &outcome {
                self.connection = None;
                house.note_trouble(&name, trouble);
            }
            house.count(name);
        }
        // Memory is measured with as many connections as after the warm-up.
        house.dismissed.cancelled().await;
    }

    async fn guarded(&mut self, turn: impl AsyncFnOnce(&mut Self) -> Outcome) -> Outcome {
        tokio::time::timeout(CEILING, turn(self)).await.unwrap_or_else(|_| wrong("no end was seen"))
    }

    fn mark(&mut self, kind: usize) -> Mark {
        self.turns += 1;
        Mark { phone: self.number, turn: self.turns, kind }
    }

    fn model(&mut self) -> &'static str {
        model_of(DIALECTS[self.random.below(DIALECTS.len())])
    }

    async fn connection(&mut self) -> io::Result<&mut Connection> {
        if self.connection.is_none() {
            self.connection = Some(Connection::to(self.house.address).await?);
        }
        Ok(self.connection.as_mut().unwrap())
    }

    /// Asks on the phone's connection and keeps that, unless its end was announced; then it has to come.
    async fn ask(&mut self, bytes: &[u8]) -> io::Result<Response> {
        let answer = self.connection().await?.ask(bytes).await?;
        if answer.closes() {
            self.connection.take().unwrap().ends().await;
        }
        Ok(answer)
    }

    /// A turn that no fault hits, sent in one of several ways.
    async fn good(&mut self) -> Outcome {
        let mark = self.mark(GOOD);
        let model = self.model();
        let body = self.conversation(mark, model);
        let mut watched = self.house.servers.expect(mark);
        let request = self.request(&body);
        let answer = match self.random.below(10) {
            0 => {
                let size = 1 + self.random.below(body.len());
                self.ask(&request.chunked(&body, size).bytes()).await?
            }
            1 => {
                let bytes = request.bytes();
                let (first, second) = bytes.split_at(self.random.below(bytes.len()));
                self.connection().await?.send(first).await?;
                tokio::task::yield_now().await;
                self.ask(second).await?
            }
            2 => {
                let connection = self.connection().await?;
                connection.send(&request.header("Expect", "100-continue").head_bytes()).await?;
                let interim = connection.read_head().await?.status;
                if interim != 100 {
                    return wrong(format!("{interim} instead of 100"));
                }
                self.ask(&body).await?
            }
            _ => self.ask(&request.bytes()).await?,
        };
        self.house.expect_line("answered", Some(200), None);
        check_reply(&answer, mark, |text| text == mark.long_answer())?;
        self.seen(&mut watched, 1..=1).await
    }

    /// A turn that meets a fault of the server.
    async fn meet(&mut self, kind: usize, fault: &ServerFault, leaves: bool) -> Outcome {
        let dialects: Vec<_> =
            (0..DIALECTS.len()).filter(|column| fault.row.expected[*column] != Expected::NoSuchCell).collect();
        let column = dialects[self.random.below(dialects.len())];
        let mark = self.mark(kind);
        let body = say(mark, model_of(DIALECTS[column]));
        let mut watched = self.house.servers.expect(mark);
        let bytes = self.request(&body).bytes();
        if leaves {
            self.connection().await?.send(&bytes).await?;
            watched.begun().await;
            let reset = self.random.once_in(2);
            self.connection.take().unwrap().leave(reset);
            self.house.expect_line("hung_up", None, None);
            return self.seen(&mut watched, fault.asked.clone()).await;
        }
        let answer = self.ask(&bytes).await?;
        match fault.row.expected[column] {
            Expected::Error(status, code) => {
                let outcome = if status < 500 { "refused" } else { "failed" };
                self.house.expect_line(outcome, Some(status), Some(code));
                check_error(&answer, status, Some(code))?;
            }
            Expected::Answer => {
                self.house.expect_line("answered", Some(200), None);
                check_reply(&answer, mark, |text| text.starts_with(&mark.answer()))?;
            }
            Expected::NoSuchCell => unreachable!("left out above"),
        }
        self.seen(&mut watched, fault.asked.clone()).await
    }

    async fn misbehave(&mut self, fault: PhoneFault) -> Outcome {
        let mark = self.mark(GOOD);
        let mut watched = self.house.servers.expect(mark);
        match fault {
            PhoneFault::Refused(refused) => self.be_refused(mark, refused).await?,
            PhoneFault::TwoAtOnce => return self.ask_twice(mark, watched).await,
            PhoneFault::LiesAboutTheLength => {
                let request = self.request(&say(mark, self.house.any_model));
                let bytes = request.header("Content-Length", "40").bytes();
                let answer = self.connection().await?.ask(&bytes).await?;
                self.house.expect_line("refused", Some(400), None);
                // What is left of the body is the beginning of a next request that never comes.
                self.connection.take().unwrap().leave(false);
                check_error(&answer, 400, None)?;
            }
            PhoneFault::SpeaksNoHttp => {
                let mut connection = self.connection.take().unwrap_or(Connection::to(self.house.address).await?);
                connection.send(format!("\0{mark}\r\n\r\n").as_bytes()).await?;
                connection.ends().await;
            }
            PhoneFault::LeavesInTheHead => self.leave_within(mark, |head, _| head).await?,
            PhoneFault::LeavesInTheBody => self.leave_within(mark, |head, whole| whole - head).await?,
            PhoneFault::LeavesTheQueue => self.leave_the_queue(mark).await?,
        }
        self.seen(&mut watched, 0..=0).await
    }

    async fn be_refused(&mut self, mark: Mark, refused: &Refused) -> Outcome {
        let words = secret(&mark.to_string());
        let asked = Asked { address: self.house.address, model: self.house.any_model, text: &words };
        let answer = self.ask(&(refused.request)(asked).bytes()).await?;
        if refused.is_turn {
            self.house.expect_line("refused", Some(refused.status), refused.code);
        }
        check_error(&answer, refused.status, refused.code)
    }

    async fn ask_twice(&mut self, first: Mark, mut watched_first: Watched) -> Outcome {
        let second = self.mark(GOOD);
        let mut watched_second = self.house.servers.expect(second);
        let (one, other) = (self.model(), self.model());
        let both = [self.request(&say(first, one)).bytes(), self.request(&say(second, other)).bytes()].concat();
        let connection = self.connection().await?;
        let answers = [connection.ask(&both).await?, connection.read().await?];
        for (answer, mark) in answers.iter().zip([first, second]) {
            self.house.expect_line("answered", Some(200), None);
            check_reply(answer, mark, |text| text == mark.long_answer())?;
        }
        self.seen(&mut watched_first, 1..=1).await?;
        self.seen(&mut watched_second, 1..=1).await
    }

    /// Sends a part of a request, up to the head or from there on, and goes away.
    async fn leave_within(&mut self, mark: Mark, length: impl Fn(usize, usize) -> usize) -> Outcome {
        let request = self.request(&say(mark, self.house.any_model));
        let (bytes, head) = (request.bytes(), request.head_bytes().len());
        let length = length(head, bytes.len());
        let start = if length == head { 1 } else { head };
        let end = start + self.random.below(length - 1);
        let reset = self.random.once_in(2);
        self.connection().await?.send(&bytes[..end]).await?;
        self.connection.take().unwrap().leave(reset);
        Ok(())
    }

    /// Leaves while its turn waits: the turn is never sent, and whoever waits behind it gets its place.
    async fn leave_the_queue(&mut self, queued: Mark) -> Outcome {
        let house = Arc::clone(&self.house);
        let _alone = house.narrow.lock().await;
        let hang = server_faults().iter().position(|fault| fault.row.name == "hang_before_head").unwrap();
        let holder = self.mark(hang);
        let mut holding = house.servers.expect(holder);
        let mut first = Connection::to(house.address).await?;
        first.send(&self.request(&say(holder, NARROW)).bytes()).await?;
        holding.begun().await;
        // A byte of a next request behind it: with that it is certain that the turn was taken in before the end was seen.
        let mut connection = self.connection.take().unwrap_or(Connection::to(house.address).await?);
        connection.send(&[&self.request(&say(queued, NARROW)).bytes()[..], b"G"].concat()).await?;
        connection.stream.shutdown().await?;
        connection.ends().await;
        house.expect_line("hung_up", None, None);
        first.leave(false);
        house.expect_line("hung_up", None, None);
        self.seen(&mut holding, 1..=1).await?;
        let proof = self.mark(GOOD);
        let mut watched = house.servers.expect(proof);
        let answer = self.ask(&self.request(&say(proof, NARROW)).bytes()).await?;
        house.expect_line("answered", Some(200), None);
        check_reply(&answer, proof, |text| text == proof.long_answer())?;
        self.seen(&mut watched, 1..=1).await
    }

    /// All connections that carried the turn are closed, and there were as many as there had to be.
    async fn seen(&self, watched: &mut Watched, asked: std::ops::RangeInclusive<usize>) -> Outcome {
        watched.closed().await;
        let seen = watched.so_far();
        if asked.contains(&seen.asked) { Ok(()) } else { wrong(format!("it was sent {} times", seen.asked)) }
    }

    fn request(&self, body: &[u8]) -> Request {
        Request::new(self.house.address, "POST", "/v1/chat/completions").token(TOKEN.as_bytes()).body(body)
    }

    /// A conversation as the app sends them: some with a history, some with pictures, few long.
    fn conversation(&mut self, mark: Mark, model: &str) -> Vec<u8> {
        let mut messages = Vec::new();
        if self.random.once_in(4) {
            for earlier in 0..=self.random.below(20) as u64 {
                let words = secret(&Mark { phone: 999, turn: earlier, kind: GOOD }.to_string());
                if self.random.once_in(10) {
                    messages.push(user(vec![text(&words), image(&png_uri(7))]));
                } else {
                    messages.push(user(words.as_str()));
                }
                messages.push(assistant(words));
            }
        }
        let padding = match self.random.below(1000) {
            0 => 1 << 20,
            1..20 => 1 << 16,
            _ => 0,
        };
        let words = secret(&format!("{}{mark}", "padding ".repeat(padding / 8)));
        if self.random.once_in(8) {
            messages.push(user(vec![text(&format!("{WITH_A_PICTURE}: {words}")), image(&jpeg_uri(9))]));
        } else {
            messages.push(user(words));
        }
        let mut body = turn(messages);
        body["model"] = model.into();
        body.to_string().into_bytes()
    }
}

fn say(mark: Mark, model: &str) -> Vec<u8> {
    super::common::say_to(model, secret(&format!("Please answer {mark}."))).to_string().into_bytes()
}

fn check_error(answer: &Response, status: u16, code: Option<&str>) -> Outcome {
    let as_said = catch_unwind(AssertUnwindSafe(|| answer.assert_error(status, code))).is_ok();
    if as_said { Ok(()) } else { wrong(format!("{} instead of {status} {code:?}", answer.status)) }
}

fn check_reply(answer: &Response, mark: Mark, is_right: impl Fn(&str) -> bool) -> Outcome {
    let Ok(reply) = catch_unwind(AssertUnwindSafe(|| answer.assert_any_reply())) else {
        return wrong(format!("{} instead of a reply", answer.status));
    };
    let text = reply["choices"][0]["message"]["content"].as_str().unwrap_or_default();
    if is_right(text) {
        return Ok(());
    }
    let shown: String = text.chars().take(80).collect();
    if mark.is_mixed_up_in(text) { Err(Trouble::Mixed(shown)) } else { wrong(format!("the reply is {shown:?}")) }
}
