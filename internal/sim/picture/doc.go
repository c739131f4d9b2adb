// Package picture draws what simulations came to: shares over time, and how inflations went. It is apart from package sim because
// programs that run in clusters simulate too, and draw nothing.
package picture
