package report

import (
	"fmt"
	"math"
	"strconv"
	"time"
)

// count writes a number with the digits that mean something, and thousands apart: 1,202,798; 870; 12.3; 0.0123.
func count(v float64) string {
	switch {
	case v == 0:
		return "0"
	case v < 0.1:
		return strconv.FormatFloat(v, 'g', 2, 64)
	case v < 10:
		return strconv.FormatFloat(v, 'f', 2, 64)
	case v < 100:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return whole(int64(math.Round(v)))
}

// whole writes a number with its thousands apart.
func whole(n int64) string {
	digits := strconv.FormatInt(n, 10)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

func times(n int64) string { return whole(n) + " times" }

// span writes a duration in the unit that suits it, with three digits.
func span(d time.Duration) string {
	switch {
	case d < time.Microsecond:
		return fmt.Sprintf("%d ns", d)
	case d < time.Millisecond:
		return digits3(float64(d)/1e3) + " µs"
	case d < time.Second:
		return digits3(float64(d)/1e6) + " ms"
	default:
		return digits3(d.Seconds()) + " s"
	}
}

func digits3(v float64) string {
	switch {
	case v < 10:
		return strconv.FormatFloat(v, 'f', 2, 64)
	case v < 100:
		return strconv.FormatFloat(v, 'f', 1, 64)
	default:
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
}

// linkName is the name of a link in text.
func linkName(link string) string {
	if link == "0.5ms" {
		return "0.5 ms each way"
	}
	return link
}
