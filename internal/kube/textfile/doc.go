// Package textfile follows a text that administrators change while a process runs: a file at a path, such as one that a kubelet mounts, or one of a ConfigMap.
//
//	path       ──read twice a second──┐
//	ConfigMap  ──watch───────────────►┴──► Found: the text, or why there is none; told when it is another than before
package textfile
