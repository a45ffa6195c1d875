package grpcguard_test

import (
	"context"
	"fmt"
	"log"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed/memlock"
	"github.com/wllock/wllock/middleware/grpcguard"
)

// shop is your service.
type shop struct {
	pb.UnimplementedTestServiceServer
}

func (shop) UnaryCall(ctx context.Context, _ *pb.SimpleRequest) (*pb.SimpleResponse, error) {
	held, _ := wllock.HeldFrom(ctx) // ctx ends when the lock is lost
	return &pb.SimpleResponse{Username: held.Key()}, nil
}

// listen runs a server and returns a connection to it and a function that stops both.
func listen(server *grpc.Server) (conn *grpc.ClientConn, stop func()) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener)
	}()
	conn, err = grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	return conn, func() {
		_ = conn.Close()
		server.Stop()
		<-done
	}
}

// One order at a time per product, across all servers.
func ExampleUnaryServerInterceptor() {
	locker, err := wllock.New("order", memlock.New()) // over Redis: redislock.Open instead of memlock
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = locker.Close(context.Background()) }()

	key := grpcguard.KeyFrom(func(r *pb.SimpleRequest) string { return string(r.GetPayload().GetBody()) })
	server := grpc.NewServer(grpc.UnaryInterceptor(grpcguard.UnaryServerInterceptor(locker, "product", key,
		grpcguard.WithCallOptions(wllock.WithWait(20*time.Millisecond)))))
	pb.RegisterTestServiceServer(server, shop{})
	conn, stop := listen(server)
	defer stop()

	client, request := pb.NewTestServiceClient(conn), &pb.SimpleRequest{Payload: &pb.Payload{Body: []byte("1000")}}
	resp, err := client.UnaryCall(context.Background(), request)
	fmt.Println(resp.GetUsername(), err)

	busy, _ := locker.Acquire(context.Background(), "product", "1000") // another caller
	defer func() { _ = busy.Release(context.Background()) }()
	_, err = client.UnaryCall(context.Background(), request)
	fmt.Println(status.Code(err))
	// Output:
	// order:product:1000 <nil>
	// ResourceExhausted
}
