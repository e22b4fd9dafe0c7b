// Package admin serves operators on two listeners of their own:
//
//   - Health has probes and metrics, for orchestrators and Prometheus on any machine.
//   - API changes the node, and shows it in a dashboard: it is for operators on the node's own machine, never for its
//     clients.
//
// API does not authenticate: whoever reaches its listener may use it. The listener is on loopback, or a Unix socket
// that only the node's user can open. As any web page can send requests to loopback through a browser on that machine,
// API refuses pages: those of another origin (Origin, Sec-Fetch-Site), and those whose own name resolves to loopback
// (Host). The dashboard's own files say nothing about the node; its scripts ask the API as anybody else does.
//
// The files of the dashboard are plain HTML, CSS and JavaScript, without a build step. What the API answers becomes
// text nodes only.
package admin
