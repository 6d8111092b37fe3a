package kube_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/headstart-mesh/headstart/control-plane/platform"
	"github.com/headstart-mesh/headstart/control-plane/platform/platformtest"
)

// 3,000 annotated Services in one namespace leave another namespace's function working: it is known, has its
// place, and the others have no more than theirs.
func TestAttackOneNamespacesServicesLeaveOthersWorking(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, _ *fakeAPI) {
		w.cold()
		for i := range 3000 {
			f := platformtest.Fire()
			f.Policy.ScaleToZero = 0
			s := serviceOf("evil", fmt.Sprintf("f%d", i), f)
			s.CreationTimestamp = metav1.NewTime(time.Now().Add(time.Duration(i) * time.Second))
			if w.applyService(s); i%50 == 0 {
				w.settle() // the fake server's watches hold no more
			}
		}
		w.settle()
		late := platformtest.Fire()
		late.Name = "default/late"
		w.Deploy(late)
		w.settle()
		evil, others := 0, map[string]bool{}
		for _, f := range w.p.State().Functions {
			if strings.HasPrefix(f.Name, "evil/") {
				evil++
			} else {
				others[f.Name] = true
			}
		}
		if evil > 1000 || !others[fire] || !others["default/late"] {
			t.Errorf("%d functions of the namespace with many, others: %v", evil, others)
		}
		for _, function := range []string{fire, "default/late"} {
			if in, err := w.p.Activate(t.Context(), platform.Request{Function: function, Node: "edge"}); err != nil || in.Node != "edge" {
				t.Errorf("%s is bound to %+v, %v", function, in, err)
			}
		}
	})
}
