// Package lab starts and drives labs.
package lab
