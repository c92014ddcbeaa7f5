//! THE table: every API that a request can name. All else about an API is derived from its row.
//!
//! To add an API, add a row with a new number and an arm where a backend executes it. Numbers are never
//! reused; a retired row stays as a comment. The high byte is the family.

use super::Request;
use super::argument::{Cursor, Wire, mark};
use super::derivation::{argument, requests};
use super::row::{Arg, Class, Direction, Matching, Reason, Row, Rule, Slot, placed};

use Reason::{
    BytesNotRecorded, CommunicatorInStep, DeviceReset, ForeignArgument, GraphCapture, HostCallback, IpcImport, OneSided, SeveralDevices,
    UnknownCall, UserRequest,
};
use Rule::{Execute, Rebuild, Refuse, Skip};

requests! {
    // ---- device
    0x0101 DeviceSet device_set "cuCtxSetCurrent" Setup [Skip, Skip] (in ordinal: U32);
    0x0102 DeviceReset device_reset "cuDevicePrimaryCtxReset" Teardown [Refuse(DeviceReset), Refuse(DeviceReset)] (in ordinal: U32);
    0x0103 DeviceCount device_count "cuDeviceGetCount" Query [Skip, Skip] () -> count: I32;
    0x0104 ContextCurrent context_current "cuCtxGetCurrent" Query [Skip, Skip] () -> context: HostPtr;
    0x0105 ContextState context_state "cuDevicePrimaryCtxGetState" Query [Skip, Skip] (in ordinal: U32) -> active: I32;
    0x0106 DeviceSynchronize device_synchronize "cuCtxSynchronize" Step [Execute, Execute] ();
    0x0107 DeviceAttribute device_attribute "cuDeviceGetAttribute" Query [Skip, Skip] (in attribute: I32, in ordinal: U32) -> value: I32;
    0x0108 ContextSetLimit context_set_limit "cuCtxSetLimit" Setup [Execute, Execute] (in limit: I32, in value: U64);

    // ---- memory
    0x0201 MemAlloc mem_alloc "cuMemAlloc" Setup [Execute, Execute] (in bytes: U64) -> address: DevPtr;
    0x0202 MemFree mem_free "cuMemFree" Teardown [Execute, Execute] (in address: DevPtr);
    0x0203 HostRegister host_register "cuMemHostRegister" Setup [Execute, Execute] (note host: HostPtr, in bytes: U64, in flags: Flags);
    0x0204 HostUnregister host_unregister "cuMemHostUnregister" Teardown [Execute, Execute] (note host: HostPtr);
    0x0205 MemcpyHtoD memcpy_htod "cuMemcpyHtoD" Step [Execute, Execute] (in dst: DevPtr, in data: Data);
    /// Size and checksum instead of the bytes: what policy redo records in a step.
    0x0206 MemcpyHtoDDigest memcpy_htod_digest "cuMemcpyHtoD (digest)" Step [Refuse(BytesNotRecorded), Refuse(BytesNotRecorded)]
        (in dst: DevPtr, in bytes: U64, in checksum: U64);
    0x0207 MemcpyDtoH memcpy_dtoh "cuMemcpyDtoH" Step [Skip, Skip] (note dst: HostPtr, in src: DevPtr, in bytes: U64);
    0x0208 MemcpyDtoD memcpy_dtod "cuMemcpyDtoD" Step [Execute, Execute] (in dst: DevPtr, in src: DevPtr, in bytes: U64);
    0x0209 MemcpyHtoDAsync memcpy_htod_async "cuMemcpyHtoDAsync" Step [Execute, Execute] (in dst: DevPtr, in data: Data, in stream: Stream);
    /// Size and checksum instead of the bytes: what policy redo records in a step.
    0x020A MemcpyHtoDAsyncDigest memcpy_htod_async_digest "cuMemcpyHtoDAsync (digest)" Step
        [Refuse(BytesNotRecorded), Refuse(BytesNotRecorded)] (in dst: DevPtr, in bytes: U64, in checksum: U64, in stream: Stream);
    0x020B MemcpyDtoHAsync memcpy_dtoh_async "cuMemcpyDtoHAsync" Step [Skip, Skip]
        (note dst: HostPtr, in src: DevPtr, in bytes: U64, in stream: Stream);
    0x020C MemcpyDtoDAsync memcpy_dtod_async "cuMemcpyDtoDAsync" Step [Execute, Execute]
        (in dst: DevPtr, in src: DevPtr, in bytes: U64, in stream: Stream);
    0x020D Memset memset "cuMemsetD8" Step [Execute, Execute] (in dst: DevPtr, in value: U32, in bytes: U64);
    0x020E MemsetAsync memset_async "cuMemsetD8Async" Step [Execute, Execute] (in dst: DevPtr, in value: U32, in bytes: U64, in stream: Stream);
    0x020F MemInfo mem_info "cuMemGetInfo" Query [Skip, Skip] () -> free: U64;
    0x0210 NcclMemAlloc nccl_mem_alloc "ncclMemAlloc" Setup [Execute, Execute] (in bytes: U64) -> address: DevPtr;
    0x0211 NcclMemFree nccl_mem_free "ncclMemFree" Teardown [Execute, Execute] (in address: DevPtr);
    /// Pinned host memory survives with its process.
    0x0212 HostAlloc host_alloc "cuMemHostAlloc" Setup [Skip, Skip] (in bytes: U64, in flags: Flags) -> host: HostPtr;
    0x0213 HostFree host_free "cuMemFreeHost" Teardown [Skip, Skip] (note host: HostPtr);
    0x0214 MemAllocAsync mem_alloc_async "cuMemAllocAsync" Setup [Execute, Execute] (in bytes: U64, in stream: Stream) -> address: DevPtr;
    0x0215 MemFreeAsync mem_free_async "cuMemFreeAsync" Teardown [Execute, Execute] (in address: DevPtr, in stream: Stream);

    // ---- stream
    0x0301 StreamCreate stream_create "cuStreamCreateWithPriority" Setup [Execute, Execute] (out stream: Stream, in flags: Flags, in priority: I32);
    0x0302 StreamDestroy stream_destroy "cuStreamDestroy" Teardown [Execute, Execute] (take stream: Stream);
    0x0303 StreamSynchronize stream_synchronize "cuStreamSynchronize" Step [Execute, Execute] (in stream: Stream);
    0x0304 StreamQuery stream_query "cuStreamQuery" Query [Skip, Skip] (in stream: Stream);
    0x0305 StreamWaitEvent stream_wait_event "cuStreamWaitEvent" Step [Execute, Execute] (in stream: Stream, in event: Event, in flags: Flags);
    0x0306 StreamGetPriority stream_get_priority "cuStreamGetPriority" Query [Skip, Skip] (in stream: Stream) -> priority: I32;
    /// A stream that the application made by itself. Work on it is not recorded, so it cannot be replayed.
    0x0307 StreamAdopt stream_adopt "rejoin_stream_adopt" Setup [Refuse(ForeignArgument), Refuse(ForeignArgument)] (out stream: Stream, note native: HostPtr);

    // ---- event
    0x0401 EventCreate event_create "cuEventCreate" Setup [Execute, Execute] (out event: Event, in flags: Flags);
    0x0402 EventDestroy event_destroy "cuEventDestroy" Teardown [Execute, Execute] (take event: Event);
    0x0403 EventRecord event_record "cuEventRecord" Step [Execute, Execute] (in event: Event, in stream: Stream);
    0x0404 EventSynchronize event_synchronize "cuEventSynchronize" Step [Execute, Execute] (in event: Event);
    0x0405 EventQuery event_query "cuEventQuery" Query [Skip, Skip] (in event: Event);
    0x0406 EventElapsed event_elapsed "cuEventElapsedTime" Query [Skip, Skip] (in start: Event, in end: Event) -> milliseconds: F32;

    // ---- module, function, library
    0x0501 ModuleLoad module_load "cuModuleLoadData" Setup [Execute, Execute] (out module: Module, in image: Data);
    0x0502 ModuleUnload module_unload "cuModuleUnload" Teardown [Execute, Execute] (take module: Module);
    0x0503 ModuleGetFunction module_get_function "cuModuleGetFunction" Setup [Execute, Execute] (out function: Function, in module: Module, in name: Text);
    0x0504 ModuleGetGlobal module_get_global "cuModuleGetGlobal" Query [Skip, Skip] (in module: Module, in name: Text) -> address: DevPtr;
    0x0505 FunctionSetAttribute function_set_attribute "cuFuncSetAttribute" Setup [Execute, Execute]
        (in function: Function, in attribute: I32, in value: I32);
    /// A shared object of the process; it stays loaded, or the program loads it again.
    0x0506 LibraryOpen library_open "dlopen" Setup [Skip, Skip] (in path: Text);
    0x0507 LibraryLoad library_load "cuLibraryLoadData" Setup [Execute, Execute] (out library: Library, in image: Data);
    0x0508 LibraryUnload library_unload "cuLibraryUnload" Teardown [Execute, Execute] (take library: Library);
    0x0509 LibraryGetKernel library_get_kernel "cuLibraryGetKernel" Setup [Execute, Execute] (out function: Function, in library: Library, in name: Text);

    // ---- launch
    0x0601 LaunchKernel launch_kernel "cuLaunchKernel" Step [Execute, Execute]
        (in function: Function, in grid_x: U32, in grid_y: U32, in grid_z: U32, in block_x: U32, in block_y: U32, in block_z: U32,
         in shared_bytes: U32, in stream: Stream, in params: Params);
    0x0602 LaunchCooperative launch_cooperative "cuLaunchCooperativeKernel" Step [Execute, Execute]
        (in function: Function, in grid_x: U32, in grid_y: U32, in grid_z: U32, in block_x: U32, in block_y: U32, in block_z: U32,
         in shared_bytes: U32, in stream: Stream, in params: Params);

    // ---- communicator. Identifiers and values differ after a rebuild, so nothing here is replayed literally.
    0x0701 GetUniqueId get_unique_id "ncclGetUniqueId" Setup [Rebuild, Refuse(CommunicatorInStep)] (out id: UniqueId);
    0x0702 CommInitRank comm_init_rank "ncclCommInitRank" Setup [Rebuild, Refuse(CommunicatorInStep)]
        (out comm: Comm, in nranks: I32, in id: UniqueId, in rank: I32);
    0x0703 CommInitRankConfig comm_init_rank_config "ncclCommInitRankConfig" Setup [Rebuild, Refuse(CommunicatorInStep)]
        (out comm: Comm, in nranks: I32, in id: UniqueId, in rank: I32, in config: Config);
    0x0704 CommInitRankScalable comm_init_rank_scalable "ncclCommInitRankScalable" Setup [Rebuild, Refuse(CommunicatorInStep)]
        (out comm: Comm, in nranks: I32, in rank: I32, in nid: I32, in ids: UniqueId, in config: Config);
    0x0705 CommInitAll comm_init_all "ncclCommInitAll" Setup [Refuse(SeveralDevices), Refuse(SeveralDevices)] (in ndev: I32, in devices: Ranks);
    0x0706 CommSplit comm_split "ncclCommSplit" Setup [Rebuild, Refuse(CommunicatorInStep)]
        (in comm: Comm, in color: I32, in key: I32, out newcomm: CommOrNull, in config: Config);
    0x0707 CommShrink comm_shrink "ncclCommShrink" Setup [Rebuild, Refuse(CommunicatorInStep)]
        (in comm: Comm, in excluded: Ranks, in excluded_count: I32, out newcomm: Comm, in config: Config, in flags: Flags);
    0x0708 CommGetUniqueId comm_get_unique_id "ncclCommGetUniqueId" Setup [Rebuild, Refuse(CommunicatorInStep)] (in comm: Comm, out id: UniqueId);
    0x0709 CommGrow comm_grow "ncclCommGrow" Setup [Rebuild, Refuse(CommunicatorInStep)]
        (in comm: CommOrNull, in nranks: I32, in id: UniqueId, in rank: I32, out newcomm: Comm, in config: Config);
    0x070A CommFinalize comm_finalize "ncclCommFinalize" Teardown [Rebuild, Refuse(CommunicatorInStep)] (in comm: Comm);
    0x070B CommDestroy comm_destroy "ncclCommDestroy" Teardown [Rebuild, Refuse(CommunicatorInStep)] (take comm: Comm);
    0x070C CommAbort comm_abort "ncclCommAbort" Teardown [Rebuild, Refuse(CommunicatorInStep)] (take comm: Comm);
    0x070D CommRevoke comm_revoke "ncclCommRevoke" Teardown [Rebuild, Refuse(CommunicatorInStep)] (in comm: Comm, in flags: Flags);
    0x070E CommSuspend comm_suspend "ncclCommSuspend" Teardown [Rebuild, Refuse(CommunicatorInStep)] (in comm: Comm, in flags: Flags);
    0x070F CommResume comm_resume "ncclCommResume" Setup [Rebuild, Refuse(CommunicatorInStep)] (in comm: Comm);
    0x0710 CommCount comm_count "ncclCommCount" Query [Skip, Skip] (in comm: Comm) -> count: I32;
    0x0711 CommCuDevice comm_cu_device "ncclCommCuDevice" Query [Skip, Skip] (in comm: Comm) -> device: I32;
    0x0712 CommUserRank comm_user_rank "ncclCommUserRank" Query [Skip, Skip] (in comm: Comm) -> rank: I32;
    0x0713 CommGetAsyncError comm_get_async_error "ncclCommGetAsyncError" Query [Skip, Skip] (in comm: Comm) -> async_error: I32;
    0x0714 CommMemStats comm_mem_stats "ncclCommMemStats" Query [Skip, Skip] (in comm: Comm, in stat: I32) -> value: U64;
    0x0715 GetLastError get_last_error "ncclGetLastError" Query [Skip, Skip] (in comm: CommOrNull);
    0x0716 CommRegister comm_register "ncclCommRegister" Setup [Rebuild, Refuse(CommunicatorInStep)]
        (in comm: Comm, in buffer: DevPtr, in bytes: U64, out registration: Registration);
    0x0717 CommDeregister comm_deregister "ncclCommDeregister" Teardown [Rebuild, Refuse(CommunicatorInStep)]
        (in comm: Comm, take registration: Registration);
    0x0718 CommWindowRegister comm_window_register "ncclCommWindowRegister" Setup [Rebuild, Refuse(CommunicatorInStep)]
        (in comm: Comm, in buffer: DevPtr, in bytes: U64, out window: Window, in flags: Flags);
    0x0719 CommWindowDeregister comm_window_deregister "ncclCommWindowDeregister" Teardown [Rebuild, Refuse(CommunicatorInStep)]
        (in comm: Comm, take window: Window);
    0x071A WinGetUserPtr win_get_user_ptr "ncclWinGetUserPtr" Query [Skip, Skip] (in comm: Comm, in window: Window) -> address: DevPtr;
    0x071B RedOpCreatePreMulSum redop_create_pre_mul_sum "ncclRedOpCreatePreMulSum" Setup [Rebuild, Refuse(CommunicatorInStep)]
        (out op: RedOp, in scalar: Data, in datatype: DataType, in residence: I32, in comm: Comm);
    0x071C RedOpDestroy redop_destroy "ncclRedOpDestroy" Teardown [Rebuild, Refuse(CommunicatorInStep)] (take op: RedOp, in comm: Comm);
    0x071D CommInitNewRank comm_init_new_rank "ncclCommInitNewRank" Setup [Rebuild, Refuse(CommunicatorInStep)] (out newcomm: Comm, in nranks: I32);
    0x071E CommAddNewRank comm_add_new_rank "ncclCommAddNewRank" Setup [Rebuild, Refuse(CommunicatorInStep)] (in comm: Comm);
    0x071F CommSetupNewRank comm_setup_new_rank "ncclCommSetupNewRank" Setup [Rebuild, Refuse(CommunicatorInStep)] (in comm: Comm);

    // ---- collectives
    0x0801 AllReduce all_reduce "ncclAllReduce" Collective [Skip, Execute]
        (in sendbuff: DevPtr, in recvbuff: DevPtr, in count: U64, in datatype: DataType, in op: Operator, in comm: Comm, in stream: Stream);
    0x0802 Broadcast broadcast "ncclBroadcast" Collective [Skip, Execute]
        (in sendbuff: DevPtr, in recvbuff: DevPtr, in count: U64, in datatype: DataType, in root: I32, in comm: Comm, in stream: Stream);
    0x0803 Bcast bcast "ncclBcast" Collective [Skip, Execute]
        (in buff: DevPtr, in count: U64, in datatype: DataType, in root: I32, in comm: Comm, in stream: Stream);
    0x0804 Reduce reduce "ncclReduce" Collective [Skip, Execute]
        (in sendbuff: DevPtr, in recvbuff: DevPtr, in count: U64, in datatype: DataType, in op: Operator, in root: I32, in comm: Comm, in stream: Stream);
    0x0805 AllGather all_gather "ncclAllGather" Collective [Skip, Execute]
        (in sendbuff: DevPtr, in recvbuff: DevPtr, in sendcount: U64, in datatype: DataType, in comm: Comm, in stream: Stream);
    0x0806 ReduceScatter reduce_scatter "ncclReduceScatter" Collective [Skip, Execute]
        (in sendbuff: DevPtr, in recvbuff: DevPtr, in recvcount: U64, in datatype: DataType, in op: Operator, in comm: Comm, in stream: Stream);
    0x0807 AllToAll all_to_all "ncclAlltoAll" Collective [Skip, Execute]
        (in sendbuff: DevPtr, in recvbuff: DevPtr, in count: U64, in datatype: DataType, in comm: Comm, in stream: Stream);
    0x0808 Gather gather "ncclGather" Collective [Skip, Execute]
        (in sendbuff: DevPtr, in recvbuff: DevPtr, in count: U64, in datatype: DataType, in root: I32, in comm: Comm, in stream: Stream);
    0x0809 Scatter scatter "ncclScatter" Collective [Skip, Execute]
        (in sendbuff: DevPtr, in recvbuff: DevPtr, in count: U64, in datatype: DataType, in root: I32, in comm: Comm, in stream: Stream);

    // ---- point-to-point
    0x0901 Send send "ncclSend" PointToPoint [Skip, Execute]
        (in sendbuff: DevPtr, in count: U64, in datatype: DataType, in peer: I32, in comm: Comm, in stream: Stream);
    0x0902 Recv recv "ncclRecv" PointToPoint [Skip, Execute]
        (in recvbuff: DevPtr, in count: U64, in datatype: DataType, in peer: I32, in comm: Comm, in stream: Stream);
    0x0903 PutSignal put_signal "ncclPutSignal" PointToPoint [Skip, Refuse(OneSided)]
        (in localbuff: DevPtr, in count: U64, in datatype: DataType, in peer: I32, in window: Window, in offset: U64, in signal: I32,
         in context: I32, in flags: Flags, in comm: Comm, in stream: Stream);
    0x0904 Signal signal "ncclSignal" PointToPoint [Skip, Refuse(OneSided)]
        (in peer: I32, in signal: I32, in context: I32, in flags: Flags, in comm: Comm, in stream: Stream);
    0x0905 WaitSignal wait_signal "ncclWaitSignal" PointToPoint [Skip, Refuse(OneSided)]
        (in count: I32, in descriptors: Data, in comm: Comm, in stream: Stream);

    // ---- group
    0x0A01 GroupStart group_start "ncclGroupStart" Group [Skip, Execute] ();
    0x0A02 GroupEnd group_end "ncclGroupEnd" Group [Skip, Execute] ();
    /// Ends the group without launching anything.
    0x0A03 GroupSimulateEnd group_simulate_end "ncclGroupSimulateEnd" Group [Skip, Execute] ();

    // ---- recorded, never replayed
    0x0B01 HostCallback host_callback "cuLaunchHostFunc" Step [Refuse(HostCallback), Refuse(HostCallback)] (in stream: Stream, note function: HostPtr);
    0x0B02 StreamCallback stream_callback "cuStreamAddCallback" Step [Refuse(HostCallback), Refuse(HostCallback)]
        (in stream: Stream, note function: HostPtr, in flags: Flags);
    0x0B03 CaptureBegin capture_begin "cuStreamBeginCapture" Setup [Refuse(GraphCapture), Refuse(GraphCapture)] (in stream: Stream, in mode: I32);
    0x0B04 CaptureEnd capture_end "cuStreamEndCapture" Setup [Refuse(GraphCapture), Refuse(GraphCapture)] (in stream: Stream) -> graph: HostPtr;
    0x0B05 GraphInstantiate graph_instantiate "cuGraphInstantiate" Setup [Refuse(GraphCapture), Refuse(GraphCapture)]
        (out exec: GraphExec, note graph: HostPtr, in flags: U64);
    0x0B06 GraphLaunch graph_launch "cuGraphLaunch" Step [Refuse(GraphCapture), Refuse(GraphCapture)] (in exec: GraphExec, in stream: Stream);
    0x0B07 GraphExecDestroy graph_exec_destroy "cuGraphExecDestroy" Teardown [Refuse(GraphCapture), Refuse(GraphCapture)] (take exec: GraphExec);
    0x0B08 IpcGetMemHandle ipc_get_mem_handle "cuIpcGetMemHandle" Setup [Refuse(IpcImport), Refuse(IpcImport)] (in address: DevPtr);
    0x0B09 IpcOpenMemHandle ipc_open_mem_handle "cuIpcOpenMemHandle" Setup [Refuse(IpcImport), Refuse(IpcImport)]
        (in handle: Data, in flags: Flags) -> address: DevPtr;
    0x0B0A IpcCloseMemHandle ipc_close_mem_handle "cuIpcCloseMemHandle" Teardown [Refuse(IpcImport), Refuse(IpcImport)] (in address: DevPtr);
    0x0B0B IpcOpenEventHandle ipc_open_event_handle "cuIpcOpenEventHandle" Setup [Refuse(IpcImport), Refuse(IpcImport)] (out event: Event, in handle: Data);
    0x0B0C MemImportHandle mem_import_handle "cuMemImportFromShareableHandle" Setup [Refuse(IpcImport), Refuse(IpcImport)]
        (in handle: Data, in handle_type: I32);
    0x0B0D ExternalMemoryImport external_memory_import "cuImportExternalMemory" Setup [Refuse(IpcImport), Refuse(IpcImport)] (in descriptor: Data);
    /// A call that was seen but is not in this table: its name, and what is known of its arguments.
    0x0B0E UnknownCall unknown_call "unknown call" Step [Refuse(UnknownCall), Refuse(UnknownCall)] (in name: Text, in arguments: Data);

    // ---- session
    /// A replacement gets the value from the journal.
    0x0C01 Exchange exchange "rejoin_exchange" Setup [Skip, Skip] (in key: Text, in value: Data);
    0x0C02 StateRegister state_register "rejoin_state_register" Setup [Skip, Skip]
        (in address: DevPtr, in bytes: U64, in kind: U32, in clique: CommOrNull, in name: Text);
    0x0C03 SetupDone setup_done "rejoin_setup_done" Setup [Skip, Skip] ();
    0x0C04 StepBegin step_begin "rejoin_step_begin" Step [Skip, Skip] (in step: U32);
    0x0C05 StepEnd step_end "rejoin_step_end" Step [Skip, Skip] (in step: U32, in blob_bytes: U64);
    0x0C06 StepCommit step_commit "rejoin_step_commit" Step [Skip, Skip] (in step: U32);

    // ---- requests of the application's own: 0x8000 to 0xFFFF. A reader that does not know one may pass over it.
    /// Opaque bytes under a number of the application's choice; see [`Request::user`](super::Request::user).
    0x8000 User user_opaque "user request" Step [Refuse(UserRequest), Refuse(UserRequest)] (in payload: Data);
}
