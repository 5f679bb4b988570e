// Questions to the server, and its stream of records. stream.rs describes a record.

// The token stands behind # in the address, and goes nowhere but into this header.
const headers = () => ({ Authorization: "Bearer " + location.hash.slice(1), "Content-Type": "application/json" });

async function post(path, question, signal) {
  const body = JSON.stringify(question);
  const response = await fetch(path, { method: "POST", headers: headers(), body, signal, credentials: "omit" });
  if (!response.ok) {
    const error = new Error(await response.text());
    error.status = response.status;
    throw error;
  }
  return response.body.getReader();
}

// Reads records one by one.
async function* records(reader) {
  let chunk = new Uint8Array(0);
  const take = async (count) => {
    const bytes = new Uint8Array(count);
    let filled = 0;
    while (filled < count) {
      if (chunk.length === 0) {
        const { done, value } = await reader.read();
        if (done) return null;
        chunk = value;
      }
      const part = chunk.subarray(0, count - filled);
      bytes.set(part, filled);
      filled += part.length;
      chunk = chunk.subarray(part.length);
    }
    return bytes;
  };
  const text = new TextDecoder();
  for (;;) {
    const lengths = await take(8);
    if (!lengths) return;
    const view = new DataView(lengths.buffer);
    const head = await take(view.getUint32(0, true));
    const body = head && await take(view.getUint32(4, true));
    if (!body) return;
    yield { head: JSON.parse(text.decode(head)), body };
  }
}

// Asks once.
export async function ask(question) {
  for await (const record of records(await post("/ask", question))) {
    if (record.head.error) throw new Error(record.head.error);
    return record;
  }
  throw new Error("the server gave no answer");
}

// Keeps one stream open for all topics, and opens it again when they change or it breaks.
export class Stream {
  constructor(onRecord, onState) {
    this.onRecord = onRecord;
    this.onState = onState;
    this.topics = [];
    this.turn = 0;
  }

  watch(topics) {
    if (JSON.stringify(topics) === JSON.stringify(this.topics)) return;
    this.topics = topics;
    clearTimeout(this.soon);
    // Changes that come together make one stream.
    this.soon = setTimeout(() => this.open(++this.turn), 20);
  }

  async open(turn) {
    this.abort?.abort();
    const abort = this.abort = new AbortController();
    let pause = 500;
    while (turn === this.turn) {
      try {
        const reader = await post("/stream", { topics: this.topics }, abort.signal);
        this.onState("");
        pause = 500;
        for await (const record of records(reader)) {
          if (turn !== this.turn) return;
          if (record.head.key !== undefined) this.onRecord(record);
        }
        throw new Error("the server has ended");
      } catch (error) {
        if (turn !== this.turn) return;
        this.onState(error.status ? error.message : "no connection to the server: trying again");
        // A wrong token stays wrong until the address changes.
        if (error.status === 401) return;
      }
      await new Promise((done) => setTimeout(done, pause));
      pause = Math.min(pause * 2, 8000);
    }
  }

  // Tries again at once.
  again() {
    if (this.topics.length) this.open(++this.turn);
  }
}
