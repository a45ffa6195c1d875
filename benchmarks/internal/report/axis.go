package report

import "math"

// logFrom is the ratio of largest to smallest from which an axis is logarithmic.
const logFrom = 20

// axis maps values to places.
type axis struct {
	from, to float64 // values at the ends
	left     float64 // place of from
	width    float64
	log      bool
}

// newAxis makes an axis that holds all positive values. A linear one begins at 0.
func newAxis(values []float64, left, width float64, alwaysLog bool) axis {
	lowest, highest := math.Inf(1), 0.0
	for _, v := range values {
		if v > 0 {
			lowest, highest = min(lowest, v), max(highest, v)
		}
	}
	if highest == 0 {
		lowest, highest = 1, 1
	}
	a := axis{left: left, width: width, log: alwaysLog || highest/lowest > logFrom}
	if !a.log {
		a.to = highest
		return a
	}
	a.from = math.Pow(10, math.Floor(math.Log10(lowest*0.7))) // room for the smallest bar
	a.to = math.Pow(10, math.Ceil(math.Log10(highest)))
	if a.to <= a.from {
		a.to = a.from * 10
	}
	return a
}

func (a axis) place(v float64) float64 {
	if a.log {
		v = max(v, a.from)
		return a.left + a.width*math.Log(v/a.from)/math.Log(a.to/a.from)
	}
	return a.left + a.width*v/a.to
}

// ticks are the values with a line: powers of ten, or quarters.
func (a axis) ticks() []float64 {
	var all []float64
	if a.log {
		for v := a.from; v <= a.to*1.001; v *= 10 {
			all = append(all, v)
		}
		return all
	}
	for i := range 5 {
		all = append(all, a.to*float64(i)/4)
	}
	return all
}
