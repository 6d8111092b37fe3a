package weights

// responseLeast is the shortest response time that Inverse divides by, in seconds. The
// paper's d_ii and the p of an idle node are 0, of which there is no inverse.
const responseLeast = 1e-6

// Inverse is FaaSt's policy to the letter (section IV.A): the response time r_ij of a
// request from node i at node j is the round trip and the time on the node,
//
//	R = D + P
//
// and its weight is the inverse of that, as a share of the row's:
//
//	w_ij = r_ij^-1 / sum_k r_ik^-1    (x 100 %)
//
// P is measured for each function, where the paper has one for all (its limitation 3). A far
// node gets its share even if the near one is idle: that is the policy.
func Inverse(f Function) Matrix {
	nodes, rtts := f.nodes(), f.rtts()
	w := make(Matrix, len(f.Demand))
	for i := range w {
		w[i] = make([]float64, len(nodes))
		var sum float64
		for j, n := range nodes {
			r := max(responseLeast, rtts[i*len(nodes)+j]+n.Sojourn)
			w[i][j] = 1 / r
			sum += w[i][j]
		}
		for j := range w[i] {
			w[i][j] /= sum
		}
	}
	return w
}
