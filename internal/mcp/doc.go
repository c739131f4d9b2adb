// Package mcp serves tools by the Model Context Protocol (https://modelcontextprotocol.io/specification/2025-06-18), over a pair of streams: JSON-RPC 2.0, a message a line.
//
// It speaks what a server of tools that only read takes: initialize, ping, tools/list, tools/call, and the notifications initialized and cancelled. It knows nothing of what tools do. It is written here, as the official kit
// brings in OAuth, a JSON library in assembly and a compiler of schemas, none of which a pipe takes.
//
//	line ──► message ──► ping, initialize, tools/list: answered at once
//	                └──► tools/call ─► queue ─► one at a time ─► answer, or a typed refusal
//
// Lines, the calls that wait, and answers are bounded. Every request with an ID gets one answer; notifications get none. A tool that panics answers an error. Serve ends when the stream does, once what was asked is answered.
package mcp
