// Package walk holds the test that types every command of the pages for newcomers, as a reader would, and compares what comes out with
// what the pages show.
//
// In a page, a code block of the language console is a conversation: a line that begins with "$ " is a command, and what follows until the
// next is what it says. A line of only "…" stands for any number of lines. Times, identifiers and the place of the lab may differ. A
// comment <!-- $ command --> is typed too, and its output is nobody's business. All commands of a page share one shell.
package walk
