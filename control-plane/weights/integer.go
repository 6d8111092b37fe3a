package weights

import (
	"cmp"
	"math"
	"slices"
)

// Integers makes a row into whole numbers that sum to total, by the method of the largest
// remainder (Hamilton): each share is rounded down, and what is left over goes, one each, to
// those that lost most. None is more than 1 from its exact share, and a larger share never
// gets less. A row without a share that is a positive number is spread evenly.
func Integers(row []float64, total int) []uint32 {
	whole := make([]uint32, len(row))
	if len(row) == 0 || total <= 0 {
		return whole
	}
	shares, sum := make([]float64, len(row)), 0.0
	for j, x := range row {
		shares[j] = believe(x, 0, math.MaxFloat64/float64(len(row)), 0)
		sum += shares[j]
	}
	if sum == 0 {
		for j := range shares {
			shares[j], sum = 1, float64(len(row))
		}
	}
	order, left := make([]int, len(row)), total
	for j := range shares {
		shares[j] = shares[j] / sum * float64(total)
		down := min(int(shares[j]), left)
		whole[j] = uint32(down)
		shares[j] -= float64(down)
		left -= down
		order[j] = j
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Or(cmp.Compare(shares[b], shares[a]), cmp.Compare(a, b)) })
	for k := 0; left > 0; k++ {
		whole[order[k%len(order)]]++
		left--
	}
	return whole
}
