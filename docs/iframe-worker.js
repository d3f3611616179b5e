// Browsers start no Worker from a file: address. There the site's search runs in a hidden frame instead, which looks to
// it like a worker: it hears "message", and its postMessage answers the page.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      frame.title = "search";
      this.ready = new Promise((resolve) => frame.addEventListener("load", () => resolve(frame.contentWindow)));
      window.answerSearch = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      frame.srcdoc =
        "<script>window.postMessage = (data) => parent.answerSearch(data)</script>" +
        `<script src="${new URL(url, document.baseURI)}"></script>`;
      document.body.append(frame);
    }

    postMessage(data) {
      this.ready.then((inside) => inside.dispatchEvent(new MessageEvent("message", { data })));
    }
  };
}
