// Package docs holds the documentation. Its tests keep it true to the source.
package docs

//go:generate go test ../control-plane/policy/reference -run TestThePageIsUpToDate -update
//go:generate go test ../control-plane/admission -run TestTheChartIsUpToDate -update
//go:generate go test ../manifests/charts -run TestTheMeshsObjectsAreUpToDate -update
//go:generate go test . -run Of(Its|Their)Results -update
//go:generate go test . -run TestTheThreatModelHasTheAttacks -update
