// Server-sent events of a fetch response: the data of each event, however the bytes are cut.

export async function* eventData(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  let data = [];
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return; // an event that the end cuts off is dropped
      rest += value;
      const held = rest.endsWith("\r") ? 1 : 0; // its LF may come with the next piece
      const lines = rest.slice(0, rest.length - held).split(/\r\n|\n|\r/);
      rest = lines.pop() + (held ? "\r" : "");
      for (const line of lines) {
        if (line === "") {
          if (data.length) yield data.join("\n");
          data = [];
        } else if (line.startsWith("data:")) {
          data.push(line.slice(line[5] === " " ? 6 : 5));
        }
      }
    }
  } finally {
    reader.cancel().catch(() => {}); // tells the server that nobody reads any more
  }
}
