#![allow(missing_docs)]
use crate::handle::*; use std::sync::Mutex; use std::collections::HashMap; use std::sync::OnceLock;
#[derive(Debug,thiserror::Error)] #[error("handle {0}")] pub struct HandleError(u64);
impl HandleError{pub fn status(&self)->crate::Status{crate::Status::StaleHandle}}
#[derive(Default)] pub struct HandleTable{m:Mutex<(u64,HashMap<u64,(u8,u64)>)>}
pub static T:OnceLock<HandleTable>=OnceLock::new();
impl HandleTable{
 pub fn reserve(&self,k:HandleKind)->Result<VirtualHandle,HandleError>{let mut m=self.m.lock().unwrap();m.0+=1;let h=(1<<63)|m.0;m.1.insert(h,(k as u8,0));Ok(VirtualHandle(h))}
 pub fn bind(&self,h:VirtualHandle,r:u64)->Result<(),HandleError>{self.m.lock().unwrap().1.get_mut(&h.0).ok_or(HandleError(h.0))?.1=r;Ok(())}
 pub fn rebind(&self,h:VirtualHandle,r:u64)->Result<(),HandleError>{self.bind(h,r)}
 pub fn resolve(&self,h:VirtualHandle,_:HandleKind)->Result<u64,HandleError>{match self.m.lock().unwrap().1.get(&h.0){Some((_,r)) if *r!=0=>Ok(*r),_=>Err(HandleError(h.0))}}
 pub fn retire(&self,h:VirtualHandle)->Result<(),HandleError>{self.m.lock().unwrap().1.remove(&h.0);Ok(())}
 pub fn unbind_kind(&self,k:HandleKind){for v in self.m.lock().unwrap().1.values_mut(){if v.0==k as u8{v.1=0}}}
}
impl crate::journal::Journal{pub fn handles(&self)->&HandleTable{T.get_or_init(Default::default)}}
