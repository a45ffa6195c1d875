// Package shoppb is generated from shop.proto.
package shoppb

//go:generate protoc --go_out=. --go_opt=paths=source_relative --go-grpc_out=. --go-grpc_opt=paths=source_relative shop.proto
