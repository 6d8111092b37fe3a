#!/bin/sh
# Makes node.pb.go and node_grpc.pb.go from node.proto. protoc comes from the PyPI
# package grpcio-tools, the plugins from the Go module proxy; nothing else is needed.
set -eu
cd "$(dirname "$0")"
tools=${XDG_CACHE_HOME:-$HOME/.cache}/headstart/protoc
if [ ! -d "$tools/grpc_tools" ]; then
	python3 -m pip install --quiet --target "$tools" grpcio-tools==1.85.1
fi
GOBIN=$tools/bin go install google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.12
GOBIN=$tools/bin go install google.golang.org/grpc/cmd/protoc-gen-go-grpc@v1.6.2
PATH=$tools/bin:$PATH PYTHONPATH=$tools python3 -m grpc_tools.protoc -I. \
	-I"$tools/grpc_tools/_proto" --go_out=. --go_opt=paths=source_relative \
	--go-grpc_out=. --go-grpc_opt=paths=source_relative node.proto
