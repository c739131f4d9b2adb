package cluster

import "strconv"

// FormatOne prints quantity x of dimension dim for people: CPUs and GPUs as decimals ("1.5", "0.25"), memory in binary
// units when it is a multiple of one ("1Gi"), "unlimited" for Unlimited.
func (d Dims) FormatOne(dim int, x int64) string {
	if x == Unlimited {
		return "unlimited"
	}
	switch dim {
	case CPU, GPU:
		return formatMilli(x)
	case RAM:
		return formatBytes(x)
	}
	return strconv.FormatInt(x, 10)
}

func formatMilli(x int64) string {
	sign := ""
	if x < 0 {
		sign, x = "-", -x
	}
	whole, frac := x/1000, x%1000
	if frac == 0 {
		return sign + strconv.FormatInt(whole, 10)
	}
	s := strconv.FormatInt(1000+frac, 10)[1:]
	for s[len(s)-1] == '0' {
		s = s[:len(s)-1]
	}
	return sign + strconv.FormatInt(whole, 10) + "." + s
}

func formatBytes(x int64) string {
	units := []string{"", "Ki", "Mi", "Gi", "Ti", "Pi"}
	u := 0
	for u < len(units)-1 && x != 0 && x%1024 == 0 {
		x /= 1024
		u++
	}
	if u == 0 && (x >= 1e6 || x <= -1e6) {
		return strconv.FormatInt(x/1e6, 10) + "M"
	}
	return strconv.FormatInt(x, 10) + units[u]
}
