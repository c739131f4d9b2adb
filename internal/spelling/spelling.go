// Package spelling finds what was probably meant by a name that nobody knows.
package spelling

import (
	"math"
	"slices"
	"strings"
)

// Longest is how much of a name is looked at, in bytes: names that people type are shorter by far, and the cost grows with the square.
const Longest = 64

// Any is for who wants the nearest name however far it is.
const Any = math.MaxInt

// Nearest is the one of the names known that takes the fewest letters put in, left out or changed to become name, and no more than most; of several the first
// by the alphabet, "" if there is none. Letters are bytes, and upper case and lower case, _ and - are alike. Cost: len(name) × all letters known.
func Nearest(name string, known []string, most int) string {
	best := ""
	for _, k := range slices.Sorted(slices.Values(known)) {
		if d := Distance(name, k); d < most || d == most && best == "" {
			best, most = k, d
		}
	}
	return best
}

func alike(s string) string {
	return strings.ReplaceAll(strings.ToLower(s[:min(len(s), Longest)]), "_", "-")
}

// Distance is how many letters have to be changed, added or removed to make a of b, after Levenshtein; alike letters as in [Nearest]. O(len(a)·len(b)).
func Distance(a, b string) int {
	a, b = alike(a), alike(b)
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal, row[j+1] = row[j+1], min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
