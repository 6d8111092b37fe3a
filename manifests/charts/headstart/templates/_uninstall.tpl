{{- /* The DaemonSet that takes Headstart off the nodes. The job below makes it, when it is time. */}}
{{- define "headstart.uninstallNode" }}
apiVersion: apps/v1
kind: DaemonSet
metadata:
  name: headstart-uninstall
  labels:
    app.kubernetes.io/name: headstart-uninstall
    {{- include "headstart.labels" . | nindent 4 }}
spec:
  selector:
    matchLabels: {app.kubernetes.io/name: headstart-uninstall}
  template:
    metadata:
      labels:
        app.kubernetes.io/name: headstart-uninstall
        sidecar.istio.io/inject: "false"
    spec:
      serviceAccountName: headstart-installer
      automountServiceAccountToken: false
      {{- include "headstart.pullSecrets" . | nindent 6 }}
      priorityClassName: {{ .Values.node.priorityClassName }}
      # As the installer: containerd has to be restarted. These pods are there for as long as that takes.
      hostPID: true
      initContainers:
        - name: uninstall
          image: {{ include "headstart.image" (list . "installer") }}
          imagePullPolicy: {{ .Values.image.pullPolicy }}
          args:
            - uninstall
            - --host-root=/host
            - --node-name=$(NODE_NAME)
            {{- if .Values.uninstall.force }}
            - --force
            {{- end }}
          env:
            - name: NODE_NAME
              valueFrom: {fieldRef: {fieldPath: spec.nodeName}}
          resources: {{- toYaml .Values.installer.resources | nindent 12 }}
          terminationMessagePolicy: FallbackToLogsOnError
          securityContext: {privileged: true, runAsUser: 0, readOnlyRootFilesystem: true}
          volumeMounts:
            - {name: host, mountPath: /host, mountPropagation: HostToContainer}
            - {name: api-access, mountPath: /var/run/secrets/kubernetes.io/serviceaccount, readOnly: true}
      containers:
        # A pod needs one. The job deletes it as soon as the one above is done.
        - name: done
          image: {{ include "headstart.image" (list . "installer") }}
          imagePullPolicy: {{ .Values.image.pullPolicy }}
          args: [--version]
          securityContext:
            runAsNonRoot: true
            runAsUser: 65532
            allowPrivilegeEscalation: false
            readOnlyRootFilesystem: true
            capabilities: {drop: [ALL]}
            seccompProfile: {type: RuntimeDefault}
      volumes:
        - name: host
          hostPath: {path: /, type: Directory}
        {{- include "headstart.apiAccess" . | nindent 8 }}
      nodeSelector: {{- toYaml .Values.node.nodeSelector | nindent 8 }}
      tolerations: {{- toYaml .Values.node.tolerations | nindent 8 }}
{{- end }}
