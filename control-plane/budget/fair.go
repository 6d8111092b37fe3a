package budget

import (
	"cmp"
	"slices"
)

// fair divides a number among those who want some of it. Nobody gets more than they want. All who get less than that get
// as much as anybody else, or one less. What is left over goes to those who have most already, so that nothing moves while
// nobody wants another number.
func fair(number int, wants, have []int) []int {
	shares := make([]int, len(wants))
	order := make([]int, 0, len(wants))
	for i, w := range wants {
		if w > 0 {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(wants[a], wants[b]) })
	level := 0
	for n, i := range order { // those who want least first: what they leave raises the level of the others
		level = number / (len(order) - n)
		if wants[i] > level {
			order = order[n:]
			break
		}
		shares[i] = wants[i]
		number -= wants[i]
		if n == len(order)-1 {
			return shares
		}
	}
	slices.Sort(order)
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(have[b], have[a]) })
	rest := number - level*len(order)
	for n, i := range order {
		if shares[i] = level; n < rest {
			shares[i]++
		}
	}
	return shares
}
