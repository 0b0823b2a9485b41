#!/bin/sh
# node.sh PLACE IMAGES KUBE FLAGS...: a node, in mount and process namespaces of its own.
set -e
place=$1 images=$2 kube=$3
shift 3
# The places that containerd, kubelet and CNI write to whatever their settings say.
for scratch in /run /var/log /var/lib/cni; do
    mkdir -p $scratch
    mount -t tmpfs tmpfs $scratch
done
# The kubelet makes sockets below its directory, whose names may have 107 characters.
mkdir -p /run/kubelet "$place/kubelet"
mount --bind "$place/kubelet" /run/kubelet
containerd --config "$place/containerd.toml" &
export CONTAINERD_ADDRESS=/run/containerd.sock CONTAINERD_NAMESPACE=k8s.io
until ctr version >/dev/null 2>&1; do sleep 0.1; done
for image in "$images"/*.tar; do ctr images import "$image"; done
"$kube" kubelet "$@" &
wait
