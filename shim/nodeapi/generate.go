package nodeapi

//go:generate sh generate.sh
