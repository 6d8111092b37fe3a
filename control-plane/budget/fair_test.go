package budget

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestFair(t *testing.T) {
	for _, tt := range []struct {
		number            int
		wants, have, want []int
	}{
		{10, []int{2, 3, 4}, []int{0, 0, 0}, []int{2, 3, 4}},
		{10, []int{20, 1, 20}, []int{0, 0, 0}, []int{5, 1, 4}},
		{10, []int{20, 1, 20}, []int{4, 1, 5}, []int{4, 1, 5}},
		{2, []int{5, 5, 5}, []int{0, 0, 0}, []int{1, 1, 0}},
		{2, []int{5, 5, 5}, []int{0, 1, 1}, []int{0, 1, 1}},
		{0, []int{5}, []int{5}, []int{0}},
		{7, []int{0, 9}, []int{7, 0}, []int{0, 7}},
		{7, nil, nil, []int{}},
	} {
		if got := fair(tt.number, tt.wants, tt.have); !slices.Equal(got, tt.want) {
			t.Errorf("%d to %v who have %v: %v, want %v", tt.number, tt.wants, tt.have, got, tt.want)
		}
	}
}

func TestFairIsFair(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 6).Draw(t, "n")
		some := rapid.SliceOfN(rapid.IntRange(0, 12), n, n)
		number, wants, have := rapid.IntRange(0, 30).Draw(t, "number"), some.Draw(t, "wants"), some.Draw(t, "have")
		got := fair(number, wants, have)
		sum, all := 0, 0
		for i := range got {
			sum, all = sum+got[i], all+wants[i]
			if got[i] < 0 || got[i] > wants[i] {
				t.Fatalf("%v of %v", got, wants)
			}
			for j := range got {
				if got[i] < wants[i] && got[j] > got[i]+1 {
					t.Fatalf("one has %d and wants %d, another has %d", got[i], wants[i], got[j])
				}
			}
		}
		if sum != min(number, all) {
			t.Fatalf("%d of %d dealt to %v", sum, number, wants)
		}
		if again := fair(number, wants, got); !slices.Equal(again, got) {
			t.Fatalf("%v becomes %v while nothing changes", got, again)
		}
	})
}
