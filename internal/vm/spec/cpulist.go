package spec

import (
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// maxCPU bounds the numbers in a list: the kernel's own limit on x86-64 is 8192 CPUs.
const maxCPU = 8192

// ParseCPUList reads the kernel's list format, such as "0-3,8". The result is ascending and without repetition; "" is nil.
func ParseCPUList(list string) ([]int, error) {
	list = strings.TrimSpace(list)
	if list == "" {
		return nil, nil
	}
	errForm := errors.New(`must be a list such as "0-3,8"`)
	if len(list) > 1<<12 {
		return nil, errForm
	}
	seen := map[int]bool{}
	for part := range strings.SplitSeq(list, ",") {
		from, to, isRange := strings.Cut(part, "-")
		low, err := number(from)
		if err != nil {
			return nil, errForm
		}
		high := low
		if isRange {
			if high, err = number(to); err != nil || high < low {
				return nil, errForm
			}
		}
		for n := low; n <= high; n++ {
			seen[n] = true
		}
	}
	return slices.Sorted(maps.Keys(seen)), nil
}

func number(s string) (int, error) {
	n, err := strconv.ParseUint(strings.TrimSpace(s), 10, 16)
	if err == nil && n >= maxCPU {
		err = strconv.ErrRange
	}
	return int(n), err
}

// FormatCPUList is the inverse of ParseCPUList, for ascending numbers.
func FormatCPUList(numbers []int) string {
	var parts []string
	for i := 0; i < len(numbers); {
		j := i
		for j+1 < len(numbers) && numbers[j+1] == numbers[j]+1 {
			j++
		}
		part := strconv.Itoa(numbers[i])
		if j > i {
			part += "-" + strconv.Itoa(numbers[j])
		}
		parts = append(parts, part)
		i = j + 1
	}
	return strings.Join(parts, ",")
}
