// The servers of Kubernetes in one program: the first argument names the server, the rest are its
// own flags. One program shares most of its code, so it is built in a third of the time and space.
package main

import (
	"context"
	"fmt"
	"os"
	"sort"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // counts of requests and retries

	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

var commands = map[string]func() *cobra.Command{
	"apiserver":          apiserver.NewAPIServerCommand,
	"controller-manager": controllers.NewControllerManagerCommand,
	"scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
	"kubelet":            func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) },
}

func main() {
	name := ""
	if len(os.Args) > 1 {
		name = os.Args[1]
		os.Args = os.Args[1:]
	}
	switch name {
	case "etcd":
		etcdmain.Main(os.Args)
		return
	case "key": // for the tokens of service accounts, on the output
		key, err := keyutil.MakeEllipticPrivateKeyPEM()
		if err != nil {
			panic(err)
		}
		os.Stdout.Write(key)
		return
	}
	if command, known := commands[name]; known {
		os.Exit(cli.Run(command()))
	}
	names := []string{"etcd", "key"}
	for name := range commands {
		names = append(names, name)
	}
	sort.Strings(names)
	fmt.Fprintf(os.Stderr, "name one of %v\n", names)
	os.Exit(2)
}
