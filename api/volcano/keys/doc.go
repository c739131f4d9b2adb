// Package keys holds the labels, annotations and fixed names by which Volcano's programs and their users speak to each other.
package keys
